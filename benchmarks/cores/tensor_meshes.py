"""Kernels on a mesh of both TensorCores of a v5p: halves, and sums through HBM behind a barrier."""

from __future__ import annotations

from benchmarks.cores.program import TWO_CORES, Program

_MEET = '        pltpu.core_barrier(met, core_axis_name="core")\n'

HALVES = Program(
    name="each core half of the rows",
    body="""
ROWS, WIDTH, STEP = 2048, 512, 128


def kernel_fn(x, y):
    def kernel(x, y, o, one, other, moved):
        @pl.loop(0, ROWS // 2 // STEP)
        def _(step):
            some = pl.ds(me() * (ROWS // 2) + step * STEP, STEP)
            copied(x.at[some], one, moved)
            copied(y.at[some], other, moved)
            one[...] = jnp.maximum(2 * one[...], other[...])
            copied(one, o.at[some], moved)

    block = VMEM((STEP, WIDTH), F32)
    return on(cores(), kernel, array((ROWS, WIDTH)), block, block, DMA)(x, y)
""",
    arrays={"x": "normal(keys, ROWS, WIDTH)", "y": "normal(keys, ROWS, WIDTH)"},
    reference="jnp.maximum(2 * x, y)",
    chips=TWO_CORES,
    wrong={
        "both cores have the first half": (("me() * (ROWS // 2) + step", "step"),),
        "the second core does nothing": (
            ("pl.loop(0, ROWS // 2 // STEP)", "pl.loop(0, (1 - me()) * (ROWS // 2 // STEP))"),
        ),
        "rows past the last": (("me() * (ROWS // 2) + step", "me() * (ROWS // 2) + STEP + step"),),
        "what has not arrived is used": (
            (
                "            copied(y.at[some], other, moved)\n",
                "            copy = pltpu.make_async_copy(y.at[some], other, moved)\n            copy.start()\n",
            ),
            ("            copied(one, o", "            copy.wait()\n            copied(one, o"),
        ),
    },
)
UNEVEN = Program(
    name="five eighths on one core, three on the other",
    body="""
ROWS, WIDTH, STEP = 2048, 512, 128
FIRST = ROWS // 8 * 5


def kernel_fn(x):
    def kernel(x, o, block, moved):
        begin, end = me() * FIRST, jnp.where(me() == 0, FIRST, ROWS)

        @pl.loop(0, lax.div(end - begin, STEP))
        def _(step):
            some = pl.ds(pl.multiple_of(begin + step * STEP, STEP), STEP)
            copied(x.at[some], block, moved)
            block[...] = jnp.tanh(block[...])
            copied(block, o.at[some], moved)

    return on(cores(), kernel, array((ROWS, WIDTH)), VMEM((STEP, WIDTH), F32), DMA)(x)
""",
    arrays={"x": "normal(keys, ROWS, WIDTH)"},
    reference="jnp.tanh(x)",
    chips=TWO_CORES,
    wrong={
        "as many steps on both": (("lax.div(end - begin, STEP)", "FIRST // STEP"),),
        "nobody has the last eighth": (("FIRST, ROWS)", "FIRST, ROWS - ROWS // 8)"),),
    },
)
PRODUCT = Program(
    name="a product, rows by core",
    body="""
SIZE, INNER, STEP = 512, 512, 128


def kernel_fn(x, w):
    def kernel(x, w, o, rows, weights, out, moved):
        copied(w, weights, moved)

        @pl.loop(0, SIZE // 2 // STEP)
        def _(step):
            some = pl.ds(me() * (SIZE // 2) + step * STEP, STEP)
            copied(x.at[some], rows, moved)
            out[...] = jnp.dot(rows[...], weights[...], preferred_element_type=F32)
            copied(out, o.at[some], moved)

    scratch = VMEM((STEP, INNER), BF16), VMEM((INNER, SIZE), BF16), VMEM((STEP, SIZE), F32), DMA
    return on(cores(), kernel, array((SIZE, SIZE)), *scratch)(x, w)
""",
    arrays={"x": "normal(keys, SIZE, INNER).astype(BF16)", "w": "normal(keys, INNER, SIZE).astype(BF16)"},
    reference="jnp.dot(x, w, preferred_element_type=F32)",
    flops="2 * SIZE * SIZE * INNER",
    chips=TWO_CORES,
    wrong={
        "weights that only one core has": (
            ("        copied(w, weights, moved)\n", "        pl.when(me() == 0)(lambda: copied(w, weights, moved))\n"),
        ),
        "rows of the other": (
            ("copied(x.at[some], rows", "copied(x.at[pl.ds((1 - me()) * (SIZE // 2) + step * STEP, STEP)], rows"),
        ),
    },
)
CONTRACTION = Program(
    name="a product, contraction by core, summed through HBM",
    body="""
SIZE, INNER = 512, 1024
HALF = SIZE // 2


def kernel_fn(x, w):
    def kernel(x, w, o, parts, one, other, out, moved, met):
        some = pl.ds(me() * (INNER // 2), INNER // 2)
        copied(x.at[:, some], one, moved)
        copied(w.at[some], other, moved)
        out[...] = jnp.dot(one[...], other[...], preferred_element_type=F32)
        copied(out, parts.at[me()], moved)
        pltpu.core_barrier(met, core_axis_name="core")
        mine = pl.ds(me() * HALF, HALF)
        copied(parts.at[0, mine], out.at[pl.ds(0, HALF)], moved)
        copied(parts.at[1, mine], out.at[pl.ds(HALF, HALF)], moved)
        out[pl.ds(0, HALF)] = out[pl.ds(0, HALF)] + out[pl.ds(HALF, HALF)]
        copied(out.at[pl.ds(0, HALF)], o.at[mine], moved)

    scratch = VMEM((SIZE, INNER // 2), BF16), VMEM((INNER // 2, SIZE), BF16), VMEM((SIZE, SIZE), F32), DMA, REGULAR
    return on(cores(), kernel, (array((SIZE, SIZE)), array((2, SIZE, SIZE))), *scratch)(x, w)[0]
""",
    arrays={"x": "normal(keys, SIZE, INNER).astype(BF16)", "w": "normal(keys, INNER, SIZE).astype(BF16)"},
    reference="jnp.dot(x, w, preferred_element_type=F32)",
    flops="2 * SIZE * SIZE * INNER",
    chips=TWO_CORES,
    wrong={
        "no barrier before the sum": ((_MEET, ""),),
        "the barrier comes before the part is written": (
            (_MEET, ""),
            ("        copied(out, parts.at[me()], moved)\n", _MEET + "        copied(out, parts.at[me()], moved)\n"),
        ),
        "a barrier that does not wait": ((_MEET, "        pl.semaphore_signal(met, 1, core_index=1 - me())\n"),),
        "a barrier that nobody signals": ((_MEET, "        pl.semaphore_wait(met, 1)\n"),),
        "the other's half is read while it is written": (
            (
                "        copied(out, parts.at[me()], moved)\n" + _MEET,
                "        copy = pltpu.make_async_copy(out, parts.at[me()], moved)\n        copy.start()\n"
                + _MEET
                + "        copy.wait()\n",
            ),
        ),
        "one part for both": (("copied(out, parts.at[me()], moved)", "copied(out, parts.at[0], moved)"),),
    },
)
NORMALISED = Program(
    name="rows over the largest of each column",
    body="""
ROWS, WIDTH = 1024, 512
HALF = ROWS // 2


def kernel_fn(x):
    def kernel(x, o, largest, rows, both, moved, met):
        mine = pl.ds(me() * HALF, HALF)
        copied(x.at[mine], rows, moved)
        both[0] = jnp.broadcast_to(jnp.max(jnp.abs(rows[...]), axis=0, keepdims=True), (8, WIDTH))
        copied(both.at[0], largest.at[me()], moved)
        pltpu.core_barrier(met, core_axis_name="core")
        copied(largest, both, moved)
        rows[...] = rows[...] / jnp.maximum(both[0], both[1])[:1]
        copied(rows, o.at[mine], moved)

    out = array((ROWS, WIDTH)), array((2, 8, WIDTH))
    return on(cores(), kernel, out, VMEM((HALF, WIDTH), F32), VMEM((2, 8, WIDTH), F32), DMA, REGULAR)(x)[0]
""",
    arrays={"x": "normal(keys, ROWS, WIDTH)"},
    reference="x / jnp.abs(x).max(0)",
    chips=TWO_CORES,
    wrong={
        "no barrier before the other's are read": ((_MEET, ""),),
        "its own largest twice": (("jnp.maximum(both[0], both[1])", "jnp.maximum(both[me()], both[me()])"),),
        "scratch is taken for shared": (
            ("        copied(both.at[0], largest.at[me()], moved)\n", "        both[me()] = both[0]\n"),
            ("        copied(largest, both, moved)\n", "        copied(both, largest, moved)\n"),
        ),
        "only one core comes to the barrier": (
            (_MEET, "        @pl.when(me() == 0)\n        def _():\n    " + _MEET + "\n"),
        ),
    },
)
LAYERS = Program(
    name="two layers, columns by core",
    body="""
ROWS, WIDTH, HIDDEN = 256, 256, 512


def kernel_fn(x, up, down):
    def kernel(x, up, down, o, hidden, rows, weights, part, whole, out, moved, met):
        mine = pl.ds(me() * (HIDDEN // 2), HIDDEN // 2)
        copied(x, rows, moved)
        copied(up.at[:, mine], weights, moved)
        part[...] = jnp.maximum(jnp.dot(rows[...], weights[...], preferred_element_type=F32), 0).astype(BF16)
        copied(part, hidden.at[:, mine], moved)
        pltpu.core_barrier(met, core_axis_name="core")
        mine = pl.ds(me() * (WIDTH // 2), WIDTH // 2)
        copied(hidden, whole, moved)
        copied(down.at[:, mine], out.at[pl.ds(0, HIDDEN)], moved)
        total = jnp.dot(whole[...], out[pl.ds(0, HIDDEN)], preferred_element_type=F32)
        out[pl.ds(0, ROWS)] = total.astype(BF16)
        copied(out.at[pl.ds(0, ROWS)], o.at[:, mine], moved)

    scratch = (
        VMEM((ROWS, WIDTH), BF16), VMEM((WIDTH, HIDDEN // 2), BF16), VMEM((ROWS, HIDDEN // 2), BF16),
        VMEM((ROWS, HIDDEN), BF16), VMEM((HIDDEN, WIDTH // 2), BF16), DMA, REGULAR,
    )
    out = array((ROWS, WIDTH), BF16), array((ROWS, HIDDEN), BF16)
    return on(cores(), kernel, out, *scratch)(x, up, down)[0]


def expected(x, up, down):
    hidden = jnp.maximum(jnp.dot(x, up, preferred_element_type=F32), 0).astype(BF16)
    return jnp.dot(hidden, down, preferred_element_type=F32).astype(BF16)
""",
    arrays={
        "x": "normal(keys, ROWS, WIDTH).astype(BF16)",
        "up": "(normal(keys, WIDTH, HIDDEN) / 16).astype(BF16)",
        "down": "(normal(keys, HIDDEN, WIDTH) / 16).astype(BF16)",
    },
    reference="expected(x, up, down)",
    flops="4 * ROWS * WIDTH * HIDDEN",
    chips=TWO_CORES,
    wrong={
        "the second layer does not wait for the first": ((_MEET, ""),),
        "both cores have the same columns": (("pl.ds(me() * (WIDTH // 2), WIDTH // 2)", "pl.ds(0, WIDTH // 2)"),),
    },
)
PIPELINE = Program(
    name="a pipeline over both cores",
    body="""
ROWS, WIDTH = 2048, 512


def kernel_fn(x, y):
    def body(x, y, o):
        o[...] = x[...] * y[...]

    def kernel(x, y, o):
        block = pl.BlockSpec((128, WIDTH), lambda step: (step, 0))
        pltpu.emit_pipeline(
            body,
            grid=(ROWS // 128,),
            in_specs=[block, block],
            out_specs=[block],
            core_axis_name="core",
            dimension_semantics=(pltpu.PARALLEL,),
        )(x, y, o)

    return on(cores(), kernel, array((ROWS, WIDTH)))(x, y)
""",
    arrays={"x": "normal(keys, ROWS, WIDTH)", "y": "normal(keys, ROWS, WIDTH)"},
    reference="x * y",
    chips=TWO_CORES,
    wrong={
        "half of the blocks": (("grid=(ROWS // 128,)", "grid=(ROWS // 256,)"),),
    },
)
MESHES = (HALVES, UNEVEN, PRODUCT, CONTRACTION, NORMALISED, LAYERS, PIPELINE)
