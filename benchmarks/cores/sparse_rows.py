"""SparseCores that move rows by index: gathers, scatters, sums by segment, bags."""

from __future__ import annotations

from benchmarks.cores.program import Program

_INDEX = "below(ROWS, keys, COUNT).at[:8].set(ROWS - 1)"

LOOKUP = Program(
    name="rows by index",
    body="""
ROWS, WIDTH, COUNT = 8192, 128, 4096


def kernel_fn(table, index):
    mesh = subcores()
    each = COUNT // mesh.size

    def kernel(table, index, o, places, rows, arrived):
        mine = pl.ds(number() * each, each)
        pltpu.sync_copy(index.at[mine], places)
        pltpu.async_copy(table.at[places], rows, arrived).wait()
        pltpu.sync_copy(rows, o.at[mine])

    scratch = VMEM((each,), I32), VMEM((each, WIDTH), F32), DMA
    return sparse(mesh, kernel, array((COUNT, WIDTH)), *scratch)(table, index)
""",
    arrays={"table": "normal(keys, ROWS, WIDTH)", "index": _INDEX},
    reference="table[index]",
    wrong={
        "rows leave before they have arrived": (
            (
                "        pltpu.async_copy(table.at[places], rows, arrived).wait()\n"
                "        pltpu.sync_copy(rows, o.at[mine])\n",
                "        copy = pltpu.async_copy(table.at[places], rows, arrived)\n"
                "        pltpu.sync_copy(rows, o.at[mine])\n"
                "        copy.wait()\n",
            ),
        ),
        "nobody waits for the rows": ((", arrived).wait()\n", ", arrived)\n"),),
        "every core has the rows of the first": (
            ("pl.ds(number() * each, each)", 'pl.ds(lax.axis_index("subcore") * each, each)'),
        ),
        "the row after": (("(table, index)\n", "(table, index + 1)\n"),),
    },
)
TWO_SLOTS = Program(
    name="rows by index, in two slots",
    body="""
ROWS, WIDTH, COUNT, STEP = 8192, 128, 8192, 16


def kernel_fn(table, index):
    mesh = subcores()
    each = COUNT // mesh.size
    steps = each // STEP

    def kernel(table, index, o, places, rows, arrived, left):
        first = number() * each
        pltpu.sync_copy(index.at[pl.ds(first, each)], places)

        def arriving(step):
            slot = lax.rem(step, 2)
            source = table.at[places.at[pl.ds(step * STEP, STEP)]]
            return pltpu.make_async_copy(source, rows.at[slot], arrived.at[slot])

        def leaving(step):
            slot = lax.rem(step, 2)
            return pltpu.make_async_copy(rows.at[slot], o.at[pl.ds(first + step * STEP, STEP)], left.at[slot])

        arriving(0).start()

        @pl.loop(0, steps)
        def _(step):
            pl.when((step > 0) & (step + 1 < steps))(lambda: leaving(step - 1).wait())
            pl.when(step + 1 < steps)(lambda: arriving(step + 1).start())
            arriving(step).wait()
            leaving(step).start()

        leaving(steps - 2).wait()
        leaving(steps - 1).wait()

    scratch = VMEM((each,), I32), VMEM((2, STEP, WIDTH), F32), DMA((2,)), DMA((2,))
    return sparse(mesh, kernel, array((COUNT, WIDTH)), *scratch)(table, index)
""",
    arrays={"table": "normal(keys, ROWS, WIDTH)", "index": _INDEX},
    reference="table[index]",
    wrong={
        "a slot is filled while its rows still leave": (
            ("            pl.when((step > 0) & (step + 1 < steps))(lambda: leaving(step - 1).wait())\n", ""),
            (
                "        leaving(steps - 2).wait()\n",
                "        pl.loop(0, steps - 1)(lambda step: leaving(step).wait())\n",
            ),
        ),
        "the last rows are not waited for": (("        leaving(steps - 1).wait()\n", ""),),
        "one wait too many": (
            ("        leaving(steps - 2).wait()\n", "        leaving(steps - 2).wait()\n        leaving(0).wait()\n"),
        ),
        "one step too few": (
            ("        @pl.loop(0, steps)\n", "        steps = each // STEP - 1\n\n        @pl.loop(0, steps)\n"),
            ("    steps = each // STEP\n\n    def kernel", "\n    def kernel"),
        ),
    },
)
SCATTER = Program(
    name="rows to where an index says",
    body="""
COUNT, WIDTH = 4096, 128


def kernel_fn(x, index):
    mesh = subcores()
    each = COUNT // mesh.size

    def kernel(x, index, o, places, rows, arrived, left):
        mine = pl.ds(number() * each, each)
        copies = (
            pltpu.make_async_copy(index.at[mine], places, arrived.at[0]),
            pltpu.make_async_copy(x.at[mine], rows, arrived.at[1]),
        )
        for copy in copies:
            copy.start()
        for copy in copies:
            copy.wait()
        pltpu.async_copy(rows, o.at[places], left).wait()

    scratch = VMEM((each,), I32), VMEM((each, WIDTH), F32), DMA((2,)), DMA
    return sparse(mesh, kernel, array((COUNT, WIDTH)), *scratch)(x, index)
""",
    arrays={"x": "normal(keys, COUNT, WIDTH)", "index": "orders(keys, COUNT)"},
    reference="jnp.zeros_like(x).at[index].set(x)",
    wrong={
        "two rows go to one place": (("(x, index)\n", "(x, index // 2 * 2)\n"),),
        "the index is used before it is there": (
            ("        for copy in copies:\n            copy.wait()\n", "        copies[1].wait()\n"),
            ("left).wait()\n", "left).wait()\n        copies[0].wait()\n"),
        ),
        "two subcores have the same rows": (("pl.ds(number() * each, each)", "pl.ds(number() // 2 * each, each)"),),
    },
)
SEGMENTS = Program(
    name="sums of rows by segment",
    body="""
ROWS, WIDTH, SEGMENTS, STEP = 8192, 128, 512, 64


def kernel_fn(x, segment):
    mesh = subcores()
    each, own = ROWS // mesh.size, SEGMENTS // mesh.num_subcores

    def kernel(x, segment, o, total, rows, places):
        core = lax.axis_index("core")
        mine = pl.ds(lax.axis_index("subcore") * own, own)

        @pl.loop(0, own)
        def _(row):
            @vectors(WIDTH)
            def _(some):
                rows[row, some] = jnp.zeros((lanes(),), F32)

        pltpu.sync_copy(rows.at[pl.ds(0, own)], total.at[mine])
        plsc.subcore_barrier()

        @pl.loop(0, each // STEP)
        def _(step):
            some = pl.ds(number() * each + step * STEP, STEP)
            pltpu.sync_copy(x.at[some], rows)
            pltpu.sync_copy(segment.at[some], places)
            pltpu.sync_copy(rows, total.at[places], add=True)

        plsc.subcore_barrier()
        pltpu.sync_copy(total.at[mine], o.at[core, mine])

    scratch = SHARED((SEGMENTS, WIDTH), F32), VMEM((STEP, WIDTH), F32), VMEM((STEP,), I32)
    return sparse(mesh, kernel, array((mesh.num_cores, SEGMENTS, WIDTH)), *scratch)(x, segment).sum(0)
""",
    arrays={"x": "normal(keys, ROWS, WIDTH)", "segment": "below(SEGMENTS, keys, ROWS)"},
    reference="jax.ops.segment_sum(x, segment, SEGMENTS)",
    wrong={
        "rows are added to what is not zero yet": (
            (
                "        plsc.subcore_barrier()\n\n        @pl.loop(0, each // STEP)\n",
                "\n        @pl.loop(0, each // STEP)\n",
            ),
        ),
        "sums leave before all have added": (
            ("        plsc.subcore_barrier()\n        pltpu.sync_copy(total", "        pltpu.sync_copy(total"),
        ),
        "rows overwrite each other": ((", add=True)", ")"),),
        "the second half of the sums is not made zero": (
            (
                "pltpu.sync_copy(rows.at[pl.ds(0, own)], total.at[mine])",
                "pl.when(lax.axis_index('subcore') < 8)(\n"
                "            lambda: pltpu.sync_copy(rows.at[pl.ds(0, own)], total.at[mine])\n        )",
            ),
        ),
        "only the first subcore waits for the others": (
            (
                "        plsc.subcore_barrier()\n        pltpu.sync_copy(total",
                "        pl.when(lax.axis_index('subcore') == 0)(plsc.subcore_barrier)\n        pltpu.sync_copy(total",
            ),
        ),
    },
)
BAGS = Program(
    name="sums of bags of rows",
    body="""
ROWS, WIDTH, BAGS, DEPTH = 8192, 128, 2048, 8


def kernel_fn(table, index):
    mesh = subcores()
    each = BAGS // mesh.size

    def kernel(table, index, o, places, rows):
        mine = pl.ds(number() * each, each)
        for depth in range(DEPTH):
            pltpu.sync_copy(index.at[pl.ds(depth * BAGS + number() * each, each)], places)
            pltpu.sync_copy(table.at[places], rows, add=depth > 0)
        pltpu.sync_copy(rows, o.at[mine])

    scratch = VMEM((each,), I32), VMEM((each, WIDTH), F32)
    return sparse(mesh, kernel, array((BAGS, WIDTH)), *scratch)(table, index)
""",
    arrays={"table": "normal(keys, ROWS, WIDTH)", "index": "below(ROWS, keys, DEPTH * BAGS)"},
    reference="table[index.reshape(DEPTH, BAGS)].sum(0)",
    wrong={
        "the last row of each bag alone": (("add=depth > 0", "add=False"),),
        "rows are added to what is not there": (("add=depth > 0", "add=True"),),
    },
)
IGNORED = Program(
    name="rows by index, some of them none",
    body="""
ROWS, WIDTH, COUNT = 8192, 128, 4096


def kernel_fn(table, index):
    mesh = subcores()
    each = COUNT // mesh.size

    def kernel(table, index, o, places, rows):
        mine = pl.ds(number() * each, each)

        @pl.loop(0, each)
        def _(row):
            @vectors(WIDTH)
            def _(some):
                rows[row, some] = jnp.zeros((lanes(),), F32)

        pltpu.sync_copy(index.at[mine], places)
        pltpu.sync_copy(table.at[plsc.Indices(places, ignored_value=-1)], rows)
        pltpu.sync_copy(rows, o.at[mine])

    scratch = VMEM((each,), I32), VMEM((each, WIDTH), F32)
    return sparse(mesh, kernel, array((COUNT, WIDTH)), *scratch)(table, index)
""",
    arrays={"table": "normal(keys, ROWS, WIDTH)", "index": "jnp.maximum(below(2 * ROWS, keys, COUNT) - ROWS, -1)"},
    reference="jnp.where(index[:, None] < 0, 0, table[index])",
    wrong={
        "none is taken for a row": (("plsc.Indices(places, ignored_value=-1)", "places"),),
        "rows that are not there are not made zero": (("pl.loop(0, each)", "pl.loop(0, 1)"),),
    },
)
BESIDE = Program(
    name="rows by index, then a product on the TensorCore",
    body="""
ROWS, WIDTH, COUNT = 4096, 128, 2048


def product(x, w, o):
    o[...] = jnp.dot(x[...], w[...], preferred_element_type=F32)


def kernel_fn(table, index, w):
    mesh = subcores()
    each = COUNT // mesh.size

    def kernel(table, index, o, places, rows):
        mine = pl.ds(number() * each, each)
        pltpu.sync_copy(index.at[mine], places)
        pltpu.sync_copy(table.at[places], rows)
        pltpu.sync_copy(rows, o.at[mine])

    scratch = VMEM((each,), I32), VMEM((each, WIDTH), F32)
    rows = sparse(mesh, kernel, array((COUNT, WIDTH)), *scratch)(table, index)
    return pl.pallas_call(
        product,
        out_shape=array((COUNT, WIDTH)),
        grid=(COUNT // 512,),
        in_specs=[pl.BlockSpec((512, WIDTH), lambda i: (i, 0)), pl.BlockSpec((WIDTH, WIDTH), lambda i: (0, 0))],
        out_specs=pl.BlockSpec((512, WIDTH), lambda i: (i, 0)),
    )(rows, w)
""",
    arrays={
        "table": "normal(keys, ROWS, WIDTH)",
        "index": "below(ROWS, keys, COUNT)",
        "w": "normal(keys, WIDTH, WIDTH) / 16",
    },
    reference="table[index] @ w",
    flops="2 * COUNT * WIDTH * WIDTH",
    wrong={
        "the last rows stay away": (
            (
                "        pltpu.sync_copy(rows, o.at[mine])",
                "        pl.when(number() < mesh.size - 1)(lambda: pltpu.sync_copy(rows, o.at[mine]))",
            ),
        ),
    },
)
ROWS = (LOOKUP, TWO_SLOTS, SCATTER, SEGMENTS, BAGS, IGNORED, BESIDE)
