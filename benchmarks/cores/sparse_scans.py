"""What a SparseCore does with its vectors: sorts, scans, masks and what they count."""

from __future__ import annotations

from benchmarks.cores.program import Program

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
    return sparse(mesh, kernel, out, VMEM((WIDTH,), F32), VMEM((room,), F32), VMEM((room,), I32))(x)[0]
""",
    arrays={"x": "orders(keys, ROWS, WIDTH).astype(F32).reshape(-1)"},
    reference="lax.top_k(x.reshape(ROWS, WIDTH), BEST)[0].reshape(-1)",  # of equal ones, any place is right
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
SCANS = (TOP, SORT, CUMMAX, COMPRESS, EXPAND, FIRST)
