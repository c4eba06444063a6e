"""What a SparseCore does with its vectors: tables, packing, loops whose turns are independent."""

from __future__ import annotations

from benchmarks.cores.program import Program

TABLE = Program(
    name="entries of a table in a subcore's memory",
    body="""
SIZE, COUNT = 16384, 65536


def kernel_fn(table, index):
    mesh = subcores()
    each = COUNT // mesh.size

    def kernel(table, index, o, own, places, got, arrived):
        mine = pl.ds(number() * each, each)
        copies = (
            pltpu.make_async_copy(table, own, arrived.at[0]),
            pltpu.make_async_copy(index.at[mine], places, arrived.at[1]),
        )
        for copy in copies:
            copy.start()
        for copy in copies:
            copy.wait()

        @plsc.parallel_loop(0, each, lanes(), unroll=4)
        def _(first):
            some = pl.ds(first, lanes())
            got[some] = plsc.load_gather(own, [places[some]])

        pltpu.sync_copy(got, o.at[mine])

    scratch = VMEM((SIZE,), F32), VMEM((each,), I32), VMEM((each,), F32), DMA((2,))
    return sparse(mesh, kernel, array((COUNT,)), *scratch)(table, index)
""",
    arrays={"table": "normal(keys, SIZE)", "index": "below(SIZE, keys, COUNT).at[:8].set(SIZE - 1)"},
    reference="table[index]",
    wrong={
        "the entry after": (("[places[some]])", "[places[some] + 1])"),),
        "the table is not waited for": (
            ("        for copy in copies:\n            copy.wait()\n", "        copies[1].wait()\n"),
            ("got, o.at[mine])\n", "got, o.at[mine])\n        copies[0].wait()\n"),
        ),
    },
)
INVERSE = Program(
    name="inverse permutations",
    body="""
ROWS, SIZE = 128, 512


def kernel_fn(order):
    mesh = subcores()
    each = ROWS // mesh.size

    def kernel(order, o, places, inverse):
        @pl.loop(0, each)
        def _(step):
            mine = pl.ds((number() * each + step) * SIZE, SIZE)
            pltpu.sync_copy(order.at[mine], places)

            @pl.loop(0, SIZE // lanes())
            def _(part):
                some = pl.ds(part * lanes(), lanes())
                plsc.store_scatter(inverse, [places[some]], part * lanes() + lax.iota(I32, lanes()))

            pltpu.sync_copy(inverse, o.at[mine])

    return sparse(mesh, kernel, array((ROWS * SIZE,), I32), VMEM((SIZE,), I32), VMEM((SIZE,), I32))(order)
""",
    arrays={"order": "orders(keys, ROWS, SIZE).reshape(-1)"},
    reference="jnp.argsort(order.reshape(ROWS, SIZE), axis=1).astype(I32).reshape(-1)",
    wrong={
        "half of each": (("pl.loop(0, SIZE // lanes())", "pl.loop(0, SIZE // lanes() // 2)"),),
        "places of the first row": (
            ("pltpu.sync_copy(order.at[mine], places)", "pltpu.sync_copy(order.at[pl.ds(0, SIZE)], places)"),
        ),
    },
)
PACKED = Program(
    name="bfloat16 scaled in float32",
    body="""
SIZE = 262144


def kernel_fn(x, y):
    mesh = subcores()
    each = SIZE // mesh.size
    how = plsc.PackFormat.INTERLEAVED

    def kernel(x, y, o, one, other):
        mine = pl.ds(number() * each, each)
        pltpu.sync_copy(x.at[mine], one)
        pltpu.sync_copy(y.at[mine], other)

        @plsc.parallel_loop(0, each, 2 * lanes(), unroll=2)
        def _(first):
            some = pl.ds(first, 2 * lanes())
            a, b = plsc.unpack(one[some], format=how)
            c, d = plsc.unpack(other[some], format=how)
            one[some] = plsc.pack(a * 0.75 + c, b * 0.75 + d, format=how)

        pltpu.sync_copy(one, o.at[mine])

    return sparse(mesh, kernel, array((SIZE,), BF16), VMEM((each,), BF16), VMEM((each,), BF16))(x, y)
""",
    arrays={"x": "normal(keys, SIZE).astype(BF16)", "y": "normal(keys, SIZE).astype(BF16)"},
    reference="(x.astype(F32) * 0.75 + y.astype(F32)).astype(BF16)",
    wrong={
        "every other element is its neighbour": (("a * 0.75 + c, b * 0.75 + d", "b * 0.75 + d, a * 0.75 + c"),),
        "one vector in two": (("0, each, 2 * lanes(), unroll", "0, each, 4 * lanes(), unroll"),),
    },
)
SILU = Program(
    name="x times its logistic function, in two slots",
    body="""
SIZE, STEP = 1 << 18, 1024


def kernel_fn(x):
    mesh = subcores()
    each = SIZE // mesh.size
    steps = each // STEP

    def kernel(x, o, slots, out, arrived, left):
        def at(step):
            return pl.ds(number() * each + step * STEP, STEP)

        def slot(ref, step):
            return ref.at[pl.ds(step % 2 * STEP, STEP)]

        def arriving(step):
            return pltpu.make_async_copy(x.at[at(step)], slot(slots, step), arrived.at[step % 2])

        def leaving(step):
            return pltpu.make_async_copy(slot(out, step), o.at[at(step)], left.at[step % 2])

        arriving(0).start()
        for step in range(steps):
            if step + 1 < steps:
                arriving(step + 1).start()
            arriving(step).wait()
            if step > 1:
                leaving(step - 2).wait()

            @plsc.parallel_loop(step % 2 * STEP, (step % 2 + 1) * STEP, lanes(), unroll=2)
            def _(first):
                some = pl.ds(first, lanes())
                out[some] = slots[some] / (1 + jnp.exp(-slots[some]))

            leaving(step).start()
        leaving(steps - 2).wait()
        leaving(steps - 1).wait()

    scratch = VMEM((2 * STEP,), F32), VMEM((2 * STEP,), F32), DMA((2,)), DMA((2,))
    return sparse(mesh, kernel, array((SIZE,)), *scratch)(x)
""",
    arrays={"x": "normal(keys, SIZE)"},
    reference="x / (1 + jnp.exp(-x))",
    wrong={
        "what has not arrived is used": (
            ("            arriving(step).wait()\n            if step > 1:\n", "            if step > 1:\n"),
            (
                "            leaving(step).start()\n",
                "            arriving(step).wait()\n            leaving(step).start()\n",
            ),
        ),
        "a slot is written while it still leaves": (
            ("            if step > 1:\n                leaving(step - 2).wait()\n\n", ""),
            (
                "            leaving(step).start()\n",
                "            if step > 1:\n                leaving(step - 2).wait()\n"
                "            leaving(step).start()\n",
            ),
        ),
        "both steps have one slot": (("pl.ds(step % 2 * STEP, STEP)]", "pl.ds(0, STEP)]"),),
    },
)
TRANSPOSE = Program(
    name="a transposition by blocks",
    body="""
ROWS, WIDTH, BLOCK = 1024, 512, 128


def kernel_fn(x):
    mesh = subcores()
    across = WIDTH // BLOCK

    def kernel(x, o, block, turned):
        @pl.when(number() < ROWS // BLOCK * across)
        def _():
            high, wide = lax.div(number(), across), lax.rem(number(), across)
            rows, columns = pl.ds(high * BLOCK, BLOCK), pl.ds(wide * BLOCK, BLOCK)
            pltpu.sync_copy(x.at[rows, columns], block)

            @pl.loop(0, BLOCK)
            def _(row):
                @pl.loop(0, BLOCK // lanes())
                def _(part):
                    down = part * lanes() + lax.iota(I32, lanes())
                    across = jnp.full((lanes(),), row, I32)
                    turned[row, pl.ds(part * lanes(), lanes())] = plsc.load_gather(block, [down, across])

            pltpu.sync_copy(turned, o.at[columns, rows])

    return sparse(mesh, kernel, array((WIDTH, ROWS)), VMEM((BLOCK, BLOCK), F32), VMEM((BLOCK, BLOCK), F32))(x)
""",
    arrays={"x": "normal(keys, ROWS, WIDTH)"},
    reference="x.T",
    wrong={
        "blocks are turned, and stay where they were": (
            ("o.at[columns, rows])", "o.at[pl.ds(wide * BLOCK, BLOCK), pl.ds(wide * BLOCK, BLOCK)])"),
        ),
        "the last block is left out": (
            ("pl.when(number() < ROWS // BLOCK * across)", "pl.when(number() < ROWS // BLOCK * across - 1)"),
        ),
        "a block that is not there": (("pl.ds(high * BLOCK, BLOCK), pl", "pl.ds(high * BLOCK + BLOCK, BLOCK), pl"),),
    },
)
BACKWARDS = Program(
    name="a vector backwards",
    body="""
SIZE = 131072


def kernel_fn(x):
    mesh = subcores()
    each = SIZE // mesh.size

    def kernel(x, o, mine, out):
        pltpu.sync_copy(x.at[pl.ds(SIZE - (number() + 1) * each, each)], mine)

        @plsc.parallel_loop(0, each, lanes())
        def _(first):
            out[pl.ds(each - lanes() - first, lanes())] = lax.rev(mine[pl.ds(first, lanes())], (0,))

        pltpu.sync_copy(out, o.at[pl.ds(number() * each, each)])

    return sparse(mesh, kernel, array((SIZE,)), VMEM((each,), F32), VMEM((each,), F32))(x)
""",
    arrays={"x": "normal(keys, SIZE)"},
    reference="x[::-1]",
    wrong={
        "before the beginning": (("SIZE - (number() + 1) * each", "SIZE - (number() + 2) * each"),),
        "each vector stays as it was": (("lax.rev(mine[pl.ds(first, lanes())], (0,))", "mine[pl.ds(first, lanes())]"),),
    },
)
VECTORS = (TABLE, INVERSE, PACKED, SILU, TRANSPOSE, BACKWARDS)
