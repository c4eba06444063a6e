"""What a SparseCore does with its vectors: sorts, scans, masks, packing, gathers and scatters in its own memory."""

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
TOP = Program(
    name="the eight largest of each row, in order",
    body="""
ROWS, WIDTH, BEST = 512, 512, 8


def kernel_fn(x):
    mesh = subcores()
    each = ROWS // mesh.size

    def kernel(x, o, where, row, keys, places):
        first = lax.iota(I32, lanes()) < BEST

        @pl.loop(0, each)
        def _(step):
            pltpu.sync_copy(x.at[pl.ds((number() * each + step) * WIDTH, WIDTH)], row)

            def merged(part, best):
                at = part * lanes() + lax.iota(I32, lanes())
                key, place = plsc.sort_key_val(row[pl.ds(part * lanes(), lanes())], at, descending=True)
                larger = key > best[0]
                both = jnp.where(larger, key, best[0]), jnp.where(larger, place, best[1])
                return tuple(plsc.sort_key_val(*both))

            none = jnp.full((lanes(),), -jnp.inf, F32), jnp.zeros((lanes(),), I32)
            best = lax.fori_loop(0, WIDTH // lanes(), merged, none)
            best = plsc.sort_key_val(*best, descending=True)
            plsc.store_compressed(keys.at[pl.ds(step * BEST, lanes())], best[0], mask=first)
            plsc.store_compressed(places.at[pl.ds(step * BEST, lanes())], best[1], mask=first)

        mine, all_of_it = pl.ds(number() * each * BEST, each * BEST), pl.ds(0, each * BEST)
        pltpu.sync_copy(keys.at[all_of_it], o.at[mine])
        pltpu.sync_copy(places.at[all_of_it], where.at[mine])

    room = each * BEST + 16
    out = array((ROWS * BEST,)), array((ROWS * BEST,), I32)
    return sparse(mesh, kernel, out, VMEM((WIDTH,), F32), VMEM((room,), F32), VMEM((room,), I32))(x)
""",
    arrays={"x": "orders(keys, ROWS, WIDTH).astype(F32).reshape(-1)"},
    reference="tuple(one.reshape(-1) for one in lax.top_k(x.reshape(ROWS, WIDTH), BEST))",
    wrong={
        "in the wrong direction": (
            ("best = plsc.sort_key_val(*best, descending=True)", "best = plsc.sort_key_val(*best)"),
        ),
        "what is merged is not reversed": (("lanes())], at, descending=True)", "lanes())], at)"),),
        "each writes over the last one's row": (
            ("keys.at[pl.ds(step * BEST, lanes())]", "keys.at[pl.ds(0, lanes())]"),
        ),
    },
)
SORT = Program(
    name="rows of sixty-four sorted",
    body="""
ROWS, WIDTH = 512, 64


def kernel_fn(x):
    mesh = subcores()
    each = ROWS // mesh.size

    def kernel(x, o, order, keys, places):
        parts = WIDTH // lanes()
        pltpu.sync_copy(x.at[pl.ds(number() * each * WIDTH, each * WIDTH)], keys)

        @pl.loop(0, each)
        def _(step):
            def part(index):
                return pl.ds(step * WIDTH + index * lanes(), lanes())

            rows = []
            for index in range(parts):
                at = index * lanes() + lax.iota(I32, lanes())
                rows.append(plsc.sort_key_val(keys[part(index)], at))
            for turn in range(parts):
                for index in range(turn % 2, parts - 1, 2):
                    low, high = rows[index], tuple(lax.rev(one, (0,)) for one in rows[index + 1])
                    less = low[0] < high[0]
                    rows[index] = plsc.sort_key_val(*(jnp.where(less, a, b) for a, b in zip(low, high)))
                    rows[index + 1] = plsc.sort_key_val(*(jnp.where(less, b, a) for a, b in zip(low, high)))
            for index, (key, place) in enumerate(rows):
                keys[part(index)] = key
                places[part(index)] = place

        mine = pl.ds(number() * each * WIDTH, each * WIDTH)
        pltpu.sync_copy(keys, o.at[mine])
        pltpu.sync_copy(places, order.at[mine])

    out = array((ROWS * WIDTH,), I32), array((ROWS * WIDTH,), I32)
    return sparse(mesh, kernel, out, VMEM((each * WIDTH,), I32), VMEM((each * WIDTH,), I32))(x)
""",
    arrays={"x": "orders(keys, ROWS, WIDTH).reshape(-1) - WIDTH // 2"},
    reference=(
        "(jnp.sort(x.reshape(ROWS, WIDTH)).reshape(-1), jnp.argsort(x.reshape(ROWS, WIDTH)).astype(I32).reshape(-1))"
    ),
    wrong={
        "half of the turns": (("for turn in range(parts):", "for turn in range(parts // 2):"),),
        "places do not travel with their keys": (
            ("places[part(index)] = place", "places[part(index)] = index * lanes() + lax.iota(I32, lanes())"),
        ),
    },
)
CUMMAX = Program(
    name="running largest of each row",
    body="""
ROWS, WIDTH = 512, 512


def kernel_fn(x):
    mesh = subcores()
    each = ROWS // mesh.size

    def kernel(x, o, row):
        @pl.loop(0, each)
        def _(step):
            mine = pl.ds((number() * each + step) * WIDTH, WIDTH)
            pltpu.sync_copy(x.at[mine], row)

            def running(part, before):
                some = pl.ds(part * lanes(), lanes())
                row[some] = jnp.maximum(plsc.cummax(row[some]), before)
                return jnp.full((lanes(),), jnp.max(row[some]))

            lax.fori_loop(0, WIDTH // lanes(), running, jnp.full((lanes(),), -(1 << 30), I32))
            pltpu.sync_copy(row, o.at[mine])

    return sparse(mesh, kernel, array((ROWS * WIDTH,), I32), VMEM((WIDTH,), I32))(x)
""",
    arrays={"x": "below(1 << 20, keys, ROWS, WIDTH).reshape(-1) - (1 << 19)"},
    reference="lax.cummax(x.reshape(ROWS, WIDTH), axis=1).reshape(-1)",
    wrong={"each vector begins anew": (("jnp.maximum(plsc.cummax(row[some]), before)", "plsc.cummax(row[some])"),)},
)
COMPRESS = Program(
    name="what is above zero, moved to the front of its row",
    body="""
ROWS, WIDTH = 512, 512


def kernel_fn(x):
    mesh = subcores()
    each = ROWS // mesh.size

    def kernel(x, o, row, front):
        @pl.loop(0, each)
        def _(step):
            mine = pl.ds((number() * each + step) * WIDTH, WIDTH)
            pltpu.sync_copy(x.at[mine], row)

            @vectors(WIDTH)
            def _(some):
                front[some] = jnp.zeros((lanes(),), F32)

            def moved(part, at):
                values = row[pl.ds(part * lanes(), lanes())]
                plsc.store_compressed(front.at[pl.ds(at, lanes())], values, mask=values > 0)
                return at + plsc.all_reduce_population_count(values > 0)[0]

            lax.fori_loop(0, WIDTH // lanes(), moved, jnp.int32(0))
            pltpu.sync_copy(front.at[pl.ds(0, WIDTH)], o.at[mine])

    return sparse(mesh, kernel, array((ROWS * WIDTH,)), VMEM((WIDTH,), F32), VMEM((WIDTH + 16,), F32))(x)


def expected(x):
    taken = jnp.take_along_axis(x, jnp.argsort(x <= 0, axis=1, stable=True), axis=1)
    return jnp.where(jnp.arange(WIDTH) < (x > 0).sum(1, keepdims=True), taken, 0)
""",
    arrays={"x": "normal(keys, ROWS * WIDTH)"},
    reference="expected(x.reshape(ROWS, WIDTH)).reshape(-1)",
    wrong={
        "behind them is what the row before left": (("            @vectors(WIDTH)\n", "            @vectors(0)\n"),),
        "the place is one too far": (("(values > 0)[0]\n", "(values > 0)[0] + 1\n"),),
    },
)
EXPAND = Program(
    name="the front of a row, moved to where a mask is",
    body="""
ROWS, WIDTH = 512, 512


def kernel_fn(x, mask):
    mesh = subcores()
    each = ROWS // mesh.size

    def kernel(x, mask, o, row, wanted, out):
        @pl.loop(0, each)
        def _(step):
            mine = pl.ds((number() * each + step) * WIDTH, WIDTH)
            pltpu.sync_copy(x.at[mine], row.at[pl.ds(0, WIDTH)])
            pltpu.sync_copy(mask.at[mine], wanted)

            def moved(part, at):
                some = pl.ds(part * lanes(), lanes())
                here = wanted[some] > 0
                out[some] = jnp.where(here, plsc.load_expanded(row.at[pl.ds(at, lanes())], mask=here), 0)
                return at + plsc.all_reduce_population_count(here)[0]

            lax.fori_loop(0, WIDTH // lanes(), moved, jnp.int32(0))
            pltpu.sync_copy(out, o.at[mine])

    scratch = VMEM((WIDTH + 16,), F32), VMEM((WIDTH,), I32), VMEM((WIDTH,), F32)
    return sparse(mesh, kernel, array((ROWS * WIDTH,)), *scratch)(x, mask)


def expected(x, mask):
    return jnp.where(mask > 0, jnp.take_along_axis(x, jnp.maximum(jnp.cumsum(mask, axis=1) - 1, 0), axis=1), 0)
""",
    arrays={"x": "normal(keys, ROWS * WIDTH)", "mask": "below(2, keys, ROWS * WIDTH)"},
    reference="expected(x.reshape(ROWS, WIDTH), mask.reshape(ROWS, WIDTH)).reshape(-1)",
    wrong={
        "as many are taken as there are lanes": (("at + plsc.all_reduce_population_count(here)[0]", "at + lanes()"),),
        "what no mask asks for is used": (
            (
                "jnp.where(here, plsc.load_expanded(row.at[pl.ds(at, lanes())], mask=here), 0)",
                "plsc.load_expanded(row.at[pl.ds(at, lanes())], mask=here)",
            ),
        ),
    },
)
FIRST = Program(
    name="where a row first exceeds two",
    body="""
ROWS, WIDTH = 1024, 256


def kernel_fn(x):
    mesh = subcores()
    each = ROWS // mesh.size

    def kernel(x, o, rows, found):
        mine = number() * each
        pltpu.sync_copy(x.at[pl.ds(mine * WIDTH, each * WIDTH)], rows)

        @pl.loop(0, each)
        def _(row):
            def earlier(part, at):
                above = rows[pl.ds(row * WIDTH + part * lanes(), lanes())] > 2
                first = plsc.all_reduce_ffs(above)
                return jnp.minimum(at, jnp.where(first < lanes(), part * lanes() + first, WIDTH))

            at = lax.fori_loop(0, WIDTH // lanes(), earlier, jnp.full((lanes(),), WIDTH, I32))
            plsc.store_scatter(found, [jnp.full((lanes(),), row, I32)], at, mask=lax.iota(I32, lanes()) == 0)

        pltpu.sync_copy(found, o.at[pl.ds(mine, each)])

    return sparse(mesh, kernel, array((ROWS,), I32), VMEM((each * WIDTH,), F32), VMEM((each,), I32))(x)
""",
    arrays={"x": "normal(keys, ROWS * WIDTH)"},
    reference=(
        "jnp.where((x.reshape(ROWS, WIDTH) > 2).any(1), (x.reshape(ROWS, WIDTH) > 2).argmax(1), WIDTH).astype(I32)"
    ),
    wrong={
        "the last instead of the first": (
            (
                "jnp.minimum(at, jnp.where(first < lanes(), part * lanes() + first, WIDTH))",
                "jnp.where(first < lanes(), part * lanes() + first, at)",
            ),
        ),
        "every other result is written": (
            ("lax.iota(I32, lanes()) == 0)", "(lax.iota(I32, lanes()) == 0) & (lax.rem(row, 2) == 0))"),
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
VECTORS = (
    TABLE, INVERSE, TOP, SORT, CUMMAX, COMPRESS, EXPAND, FIRST, PACKED, SILU, TRANSPOSE, BACKWARDS,
)  # fmt: skip
