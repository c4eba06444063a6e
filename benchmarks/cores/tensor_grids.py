"""Kernels whose grid has a dimension for both TensorCores of a v5p."""

from __future__ import annotations

from benchmarks.cores.program import TWO_CORES, Program

_SPLIT = "compiler_params=pltpu.CompilerParams(dimension_semantics=(pltpu.CORE_PARALLEL, pltpu.ARBITRARY)),"

SOFTMAX = Program(
    name="a softmax whose rows are split",
    body=f"""
ROWS, WIDTH, STEP = 1024, 512, 128
HALF = ROWS // 2 // STEP


def kernel(x, o):
    value = jnp.exp(x[...] - jnp.max(x[...], axis=1, keepdims=True))
    o[...] = value / jnp.sum(value, axis=1, keepdims=True)


def kernel_fn(x):
    return pl.pallas_call(
        kernel,
        out_shape=array((ROWS, WIDTH)),
        grid=(2, HALF),
        in_specs=[pl.BlockSpec((STEP, WIDTH), lambda core, step: (core * HALF + step, 0))],
        out_specs=pl.BlockSpec((STEP, WIDTH), lambda core, step: (core * HALF + step, 0)),
        {_SPLIT}
    )(x)
""",
    arrays={"x": "normal(keys, ROWS, WIDTH)"},
    reference="jax.nn.softmax(x, axis=1)",
    chips=TWO_CORES,
    wrong={
        "both cores write the first half": (
            (
                "        out_specs=pl.BlockSpec((STEP, WIDTH), lambda core, step: (core * HALF + step, 0))",
                "        out_specs=pl.BlockSpec((STEP, WIDTH), lambda core, step: (step, 0))",
            ),
        ),
        "both cores read the first half": (
            (
                "        in_specs=[pl.BlockSpec((STEP, WIDTH), lambda core, step: (core * HALF + step, 0))]",
                "        in_specs=[pl.BlockSpec((STEP, WIDTH), lambda core, step: (step, 0))]",
            ),
        ),
    },
)
NORM = Program(
    name="layer norm with a row of means kept by core",
    body=f"""
ROWS, WIDTH, STEP = 1024, 512, 128
HALF = ROWS // 2 // STEP


def kernel(x, scale, shift, o, weights):
    @pl.when(pl.program_id(1) == 0)
    def _():
        weights[...] = jnp.broadcast_to(scale[...], (8, WIDTH))

    mean = jnp.mean(x[...], axis=1, keepdims=True)
    far = x[...] - mean
    spread = jnp.mean(far * far, axis=1, keepdims=True)
    o[...] = far * lax.rsqrt(spread + 1e-6) * weights[:1] + shift[...]


def kernel_fn(x, scale, shift):
    row = pl.BlockSpec((1, WIDTH), lambda core, step: (0, 0))
    rows = pl.BlockSpec((STEP, WIDTH), lambda core, step: (core * HALF + step, 0))
    return pl.pallas_call(
        kernel,
        out_shape=array((ROWS, WIDTH)),
        grid=(2, HALF),
        in_specs=[rows, row, row],
        out_specs=rows,
        scratch_shapes=[VMEM((8, WIDTH), F32)],
        {_SPLIT}
    )(x, scale, shift)


def expected(x, scale, shift):
    far = x - x.mean(1, keepdims=True)
    return far * lax.rsqrt((far * far).mean(1, keepdims=True) + 1e-6) * scale + shift
""",
    arrays={"x": "normal(keys, ROWS, WIDTH)", "scale": "normal(keys, 1, WIDTH)", "shift": "normal(keys, 1, WIDTH)"},
    reference="expected(x, scale, shift)",
    chips=TWO_CORES,
    wrong={
        "scratch is filled on the first core alone": (
            ("pl.when(pl.program_id(1) == 0)", "pl.when(pl.program_id(0) + pl.program_id(1) == 0)"),
        ),
        "rows past the last": (("(core * HALF + step, 0)", "(core * HALF + step + 1, 0)"),),
    },
)
TURNED = Program(
    name="a transposition, blocks by core",
    body=f"""
ROWS, WIDTH, BLOCK = 1024, 512, 256


def kernel(x, o):
    o[...] = x[...].T


def kernel_fn(x):
    return pl.pallas_call(
        kernel,
        out_shape=array((WIDTH, ROWS)),
        grid=(2, ROWS // BLOCK),
        in_specs=[pl.BlockSpec((BLOCK, BLOCK), lambda core, step: (step, core))],
        out_specs=pl.BlockSpec((BLOCK, BLOCK), lambda core, step: (core, step)),
        {_SPLIT}
    )(x)
""",
    arrays={"x": "normal(keys, ROWS, WIDTH)"},
    reference="x.T",
    chips=TWO_CORES,
    wrong={
        "the last block of each core is left out": (("grid=(2, ROWS // BLOCK)", "grid=(2, ROWS // BLOCK - 1)"),),
        "a block of the other core": (("lambda core, step: (step, core))]", "lambda core, step: (step, 1 - core))]"),),
    },
)
PREFETCHED = Program(
    name="rows of a table by prefetched numbers",
    body=f"""
ROWS, WIDTH, COUNT = 1024, 256, 128
HALF = COUNT // 2


def kernel(index, row, o):
    o[...] = row[...] * 2


def kernel_fn(table, index):
    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(2, HALF),
        in_specs=[pl.BlockSpec((8, WIDTH), lambda core, step, index: (index[core * HALF + step], 0))],
        out_specs=pl.BlockSpec((8, WIDTH), lambda core, step, index: (core * HALF + step, 0)),
    )
    return pl.pallas_call(
        kernel,
        out_shape=array((COUNT * 8, WIDTH)),
        grid_spec=grid,
        {_SPLIT}
    )(index, table)
""",
    arrays={"table": "normal(keys, ROWS * 8, WIDTH)", "index": "below(ROWS, keys, COUNT).at[-1].set(ROWS - 1)"},
    reference="2 * table.reshape(ROWS, 8, WIDTH)[index].reshape(-1, WIDTH)",
    chips=TWO_CORES,
    wrong={
        "both cores take the first numbers": (("index[core * HALF + step]", "index[step]"),),
        "numbers past the last row": (("index[core * HALF + step]", "index[core * HALF + step] + 1"),),
    },
)
KEPT = Program(
    name="a product, sums kept by core",
    body=f"""
SIZE, INNER, STEP = 512, 1024, 256


def kernel(x, w, o, total):
    @pl.when(pl.program_id(1) == 0)
    def _():
        total[...] = jnp.zeros_like(total)

    total[...] += jnp.dot(x[...], w[...], preferred_element_type=F32)

    @pl.when(pl.program_id(1) == INNER // STEP - 1)
    def _():
        o[...] = total[...]


def kernel_fn(x, w):
    return pl.pallas_call(
        kernel,
        out_shape=array((SIZE, SIZE)),
        grid=(2, INNER // STEP),
        in_specs=[
            pl.BlockSpec((SIZE // 2, STEP), lambda core, step: (core, step)),
            pl.BlockSpec((STEP, SIZE), lambda core, step: (step, 0)),
        ],
        out_specs=pl.BlockSpec((SIZE // 2, SIZE), lambda core, step: (core, 0)),
        scratch_shapes=[VMEM((SIZE // 2, SIZE), F32)],
        {_SPLIT}
    )(x, w)
""",
    arrays={"x": "normal(keys, SIZE, INNER).astype(BF16)", "w": "normal(keys, INNER, SIZE).astype(BF16)"},
    reference="jnp.dot(x, w, preferred_element_type=F32)",
    flops="2 * SIZE * SIZE * INNER",
    chips=TWO_CORES,
    wrong={
        "the second core's sum does not begin with zero": (
            ("    @pl.when(pl.program_id(1) == 0)\n", "    @pl.when(pl.program_id(0) + pl.program_id(1) == 0)\n"),
        ),
        "the contraction is split, and nobody adds": (
            ("lambda core, step: (core, step))", "lambda core, step: (0, core * (INNER // STEP // 2) + step))"),
            ("lambda core, step: (step, 0))", "lambda core, step: (core * (INNER // STEP // 2) + step, 0))"),
            ("grid=(2, INNER // STEP)", "grid=(2, INNER // STEP // 2)"),
            ("== INNER // STEP - 1)", "== INNER // STEP // 2 - 1)"),
            ("lambda core, step: (core, 0))", "lambda core, step: (0, 0))"),
        ),
        "the first core writes its half alone": (
            (
                "    @pl.when(pl.program_id(1) == INNER // STEP - 1)\n",
                "    @pl.when((pl.program_id(1) == INNER // STEP - 1) & (pl.program_id(0) == 0))\n",
            ),
        ),
    },
)
GRIDS = (SOFTMAX, NORM, TURNED, PREFETCHED, KEPT)
