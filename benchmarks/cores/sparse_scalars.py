"""Scalar subcores of SparseCores, and pipelines over the vector ones."""

from __future__ import annotations

from benchmarks.cores.program import Program

PIPELINE = Program(
    name="a pipeline over all subcores",
    body="""
ROWS, WIDTH = 4096, 128


def kernel_fn(x, y):
    mesh = subcores()

    def body(x, y, o):
        @pl.loop(0, 8)
        def _(row):
            @vectors(WIDTH)
            def _(some):
                o[row, some] = 2 * x[row, some] - y[row, some]

    def kernel(x, y, o):
        block = pl.BlockSpec((8, WIDTH), lambda step: (step, 0))
        pltpu.emit_pipeline(
            body,
            grid=(ROWS // 8,),
            in_specs=[block, block],
            out_specs=[block],
            core_axis_name=("core", "subcore"),
            dimension_semantics=(pltpu.PARALLEL,),
        )(x, y, o)

    return sparse(mesh, kernel, array((ROWS, WIDTH)))(x, y)
""",
    arrays={"x": "normal(keys, ROWS, WIDTH)", "y": "normal(keys, ROWS, WIDTH)"},
    reference="2 * x - y",
    wrong={
        "every core does what the first does": (
            ('core_axis_name=("core", "subcore")', 'core_axis_name="subcore"'),
            ("lambda step: (step, 0)", 'lambda step: (step + 0 * lax.axis_index("core"), 0)'),
            ("grid=(ROWS // 8,)", "grid=(ROWS // 16,)"),
        ),
        "blocks past the last": (("lambda step: (step, 0)", "lambda step: (step + 1, 0)"),),
        "half of each block": (("pl.loop(0, 8)", "pl.loop(0, 4)"),),
    },
)
SCALAR = Program(
    name="running sums by scalar subcores",
    body="""
ROWS, SIZE = 4, 512


def kernel_fn(x):
    mesh = plsc.ScalarSubcoreMesh(axis_name="core")
    each = ROWS // mesh.num_cores

    def kernel(x, o, values, arrived):
        @pl.loop(0, each)
        def _(row):
            mine = pl.ds((lax.axis_index("core") * each + row) * SIZE, SIZE)
            pltpu.async_copy(x.at[mine], values, arrived).wait()

            @pl.loop(1, SIZE)
            def _(place):
                values[place] = values[place] + values[place - 1]

            pltpu.async_copy(values, o.at[mine], arrived).wait()

    return on(mesh, kernel, array((ROWS * SIZE,), I32), SMEM((SIZE,), I32), DMA)(x)
""",
    arrays={"x": "below(1 << 16, keys, ROWS * SIZE)"},
    reference="jnp.cumsum(x.reshape(ROWS, SIZE), axis=1).astype(I32).reshape(-1)",
    wrong={
        "sums begin before the values are there": (
            (
                "pltpu.async_copy(x.at[mine], values, arrived).wait()",
                "copy = pltpu.async_copy(x.at[mine], values, arrived)",
            ),
            (
                "            pltpu.async_copy(values, o",
                "            copy.wait()\n            pltpu.async_copy(values, o",
            ),
        ),
        "before the first one": (("pl.loop(1, SIZE)", "pl.loop(0, SIZE)"),),
        "all cores have the first rows": (('lax.axis_index("core") * each + row', "row"),),
    },
)
BLOCKS = Program(
    name="blocks in the order of a table, by scalar subcores",
    body="""
BLOCKS, WIDTH = 512, 128


def kernel_fn(x, order):
    mesh = plsc.ScalarSubcoreMesh(axis_name="core")
    each = BLOCKS // mesh.num_cores

    def kernel(x, order, o, table, block, arrived, left):
        first = lax.axis_index("core") * each
        pltpu.sync_copy(order.at[pl.ds(first, each)], table)

        def arriving(step):
            return pltpu.make_async_copy(x.at[pl.ds(table[step] * 8, 8)], block.at[step % 2], arrived.at[step % 2])

        def leaving(step):
            return pltpu.make_async_copy(block.at[step % 2], o.at[pl.ds((first + step) * 8, 8)], left.at[step % 2])

        arriving(0).start()

        @pl.loop(0, each)
        def _(step):
            pl.when((step > 0) & (step + 1 < each))(lambda: leaving(step - 1).wait())
            pl.when(step + 1 < each)(lambda: arriving(step + 1).start())
            arriving(step).wait()
            leaving(step).start()

        leaving(each - 2).wait()
        leaving(each - 1).wait()

    scratch = SMEM((each,), I32), SHARED((2, 8, WIDTH), F32), DMA((2,)), DMA((2,))
    return on(mesh, kernel, array((BLOCKS * 8, WIDTH)), *scratch)(x, order)
""",
    arrays={"x": "normal(keys, BLOCKS * 8, WIDTH)", "order": "orders(keys, BLOCKS)"},
    reference="x.reshape(BLOCKS, 8, WIDTH)[order].reshape(-1, WIDTH)",
    wrong={
        "a block leaves before it has arrived": (
            (
                "            arriving(step).wait()\n            leaving(step).start()\n",
                "            leaving(step).start()\n            arriving(step).wait()\n",
            ),
        ),
        "the last block does not leave": (
            (
                "            leaving(step).start()\n",
                "            pl.when(step + 1 < each)(lambda: leaving(step).start())\n",
            ),
        ),
        "a block past the last": (("table[step] * 8, 8", "table[step] * 8 + 8, 8"),),
        "one block's room for two": (
            ("block.at[step % 2], arrived", "block.at[0], arrived"),
            ("block.at[step % 2], o", "block.at[0], o"),
        ),
    },
)
SCALARS = (PIPELINE, SCALAR, BLOCKS)
