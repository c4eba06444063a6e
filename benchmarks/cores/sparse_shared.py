"""Subcores of a SparseCore together: shared memory, barriers, semaphores and counters."""

from __future__ import annotations

from benchmarks.cores.program import Program

HISTOGRAM = Program(
    name="a histogram",
    body="""
SIZE, BINS, STEP = 131072, 1024, 1024


def kernel_fn(x):
    mesh = subcores()
    each, share = SIZE // mesh.size, BINS // mesh.num_subcores

    def kernel(x, o, parts, values, counts, own, arrived):
        subcore = lax.axis_index("subcore")

        @vectors(BINS)
        def _(some):
            counts[some] = jnp.zeros((lanes(),), I32)

        @pl.loop(0, each // STEP)
        def _(step):
            pltpu.sync_copy(x.at[pl.ds(number() * each + step * STEP, STEP)], values)

            @vectors(STEP)
            def _(some):
                seen, last = plsc.scan_count(values[some])
                plsc.addupdate_scatter(counts, [values[some]], seen, mask=last)

        pltpu.sync_copy(counts, parts.at[pl.ds(subcore * BINS, BINS)])
        plsc.subcore_barrier()
        copies = [
            pltpu.make_async_copy(
                parts.at[pl.ds(other * BINS + subcore * share, share)], own.at[pl.ds(other * share, share)], arrived
            )
            for other in range(mesh.num_subcores)
        ]
        for copy in copies:
            copy.start()
        for copy in copies:
            copy.wait()

        @vectors(share)
        def _(some):
            counts[some] = own[some]
            for other in range(1, mesh.num_subcores):
                plsc.addupdate(counts.at[some], own[pl.ds(other * share + some.start, lanes())])

        place = lax.axis_index("core") * BINS + subcore * share
        pltpu.sync_copy(counts.at[pl.ds(0, share)], o.at[pl.ds(place, share)])

    scratch = SHARED((mesh.num_subcores * BINS,), I32), VMEM((STEP,), I32), VMEM((BINS,), I32), VMEM((BINS,), I32), DMA
    out = array((mesh.num_cores * BINS,), I32)
    return sparse(mesh, kernel, out, *scratch)(x).reshape(mesh.num_cores, BINS).sum(0)
""",
    arrays={"x": "below(BINS, keys, SIZE)"},
    reference="jnp.bincount(x, length=BINS).astype(I32)",
    wrong={
        "counts of the others are read before they are there": (("        plsc.subcore_barrier()\n", ""),),
        "equal values of a vector count each other": (("seen, mask=last)", "seen)"),),
        "the last subcore's counts are left out": (("range(1, mesh.num_subcores)", "range(1, mesh.num_subcores - 1)"),),
        "counts begin with what is there": (("        @vectors(BINS)\n", "        @vectors(BINS // 2)\n"),),
    },
)
PREFIX = Program(
    name="running sum of a long vector on one SparseCore",
    body="""
SIZE = 65536


def kernel_fn(x):
    mesh = subcores(num_cores=1)
    each = SIZE // mesh.size

    def kernel(x, o, totals, values, total, others):
        subcore, width = lax.axis_index("subcore"), lanes()
        mine = pl.ds(subcore * each, each)
        pltpu.sync_copy(x.at[mine], values)

        def running(part, before):
            some = pl.ds(part * width, width)
            values[some] = plsc.cumsum(values[some]) + before
            return jnp.full((width,), jnp.max(values[some]))

        total[...] = lax.fori_loop(0, each // width, running, jnp.zeros((width,), I32))
        pltpu.sync_copy(total, totals.at[pl.ds(subcore * width, width)])
        plsc.subcore_barrier()
        pltpu.sync_copy(totals, others)

        def added(other, before):
            return before + jnp.where(other < subcore, others[pl.ds(other * width, width)], 0)

        before = lax.fori_loop(0, mesh.num_subcores, added, jnp.zeros((width,), I32))

        @vectors(each)
        def _(some):
            values[some] = values[some] + before

        pltpu.sync_copy(values, o.at[mine])

    every = mesh.num_subcores * lanes()
    scratch = SHARED((every,), I32), VMEM((each,), I32), VMEM((lanes(),), I32), VMEM((every,), I32)
    return sparse(mesh, kernel, array((SIZE,), I32), *scratch)(x)
""",
    arrays={"x": "below(1 << 10, keys, SIZE)"},
    reference="jnp.cumsum(x).astype(I32)",
    wrong={
        "totals are read before all are there": (("        plsc.subcore_barrier()\n", ""),),
        "its own total, too": (("other < subcore", "other <= subcore"),),
        "all totals go to one place": (("totals.at[pl.ds(subcore * width, width)]", "totals.at[pl.ds(0, width)]"),),
    },
)
HALO = Program(
    name="means of three, edges by shared memory",
    body="""
SIZE = 65536


def kernel_fn(x):
    mesh = subcores(num_cores=1)
    each, width = SIZE // mesh.size, 16

    def kernel(x, o, edges, values, out):
        subcore, last = lax.axis_index("subcore"), mesh.num_subcores - 1
        mine = pl.ds(subcore * each, each)
        pltpu.sync_copy(x.at[mine], values.at[pl.ds(width, each)])
        pltpu.sync_copy(values.at[pl.ds(width, width)], edges.at[pl.ds(2 * subcore * width, width)])
        pltpu.sync_copy(values.at[pl.ds(each, width)], edges.at[pl.ds((2 * subcore + 1) * width, width)])
        plsc.subcore_barrier()
        before, after = lax.rem(subcore + last, last + 1), lax.rem(subcore + 1, last + 1)
        pltpu.sync_copy(edges.at[pl.ds((2 * before + 1) * width, width)], values.at[pl.ds(0, width)])
        pltpu.sync_copy(edges.at[pl.ds(2 * after * width, width)], values.at[pl.ds(width + each, width)])

        @pl.loop(0, each // lanes())
        def _(part):
            here = width + part * lanes() + lax.iota(I32, lanes())
            three = [plsc.load_gather(values, [here + step]) for step in (-1, 0, 1)]
            out[pl.ds(part * lanes(), lanes())] = (three[0] + three[1] + three[2]) / 3

        pltpu.sync_copy(out, o.at[mine])

    scratch = SHARED((2 * mesh.num_subcores * width,), F32), VMEM((each + 2 * width,), F32), VMEM((each,), F32)
    return sparse(mesh, kernel, array((SIZE,)), *scratch)(x)
""",
    arrays={"x": "normal(keys, SIZE)"},
    reference="(jnp.roll(x, 1) + x + jnp.roll(x, -1)) / 3",
    wrong={
        "edges are read before they are there": (("        plsc.subcore_barrier()\n", ""),),
        "one edge of the wrong neighbour": (("edges.at[pl.ds((2 * before + 1)", "edges.at[pl.ds((2 * after + 1)"),),
        "the edge behind the last one": (("(2 * after * width, width)]", "(2 * (subcore + 1) * width, width)]"),),
    },
)
SIGNALS = Program(
    name="rows of the subcore before, by a signal",
    body="""
ROWS, WIDTH, EACH = 256, 128, 16


def kernel_fn(x):
    mesh = subcores(num_cores=1)

    def kernel(x, o, shared, mine, there):
        subcore, count = lax.axis_index("subcore"), mesh.num_subcores

        def rows(of):
            return pl.ds(lax.rem(of + count, count) * EACH, EACH)

        pltpu.sync_copy(x.at[rows(subcore)], mine)
        pltpu.sync_copy(mine, shared.at[rows(subcore)])
        pl.semaphore_signal(there, 1, core_index=lax.rem(subcore + 1, count))
        pl.semaphore_wait(there, 1)
        pltpu.sync_copy(shared.at[rows(subcore - 1)], mine)
        pltpu.sync_copy(mine, o.at[rows(subcore)])

    scratch = SHARED((ROWS, WIDTH), F32), VMEM((EACH, WIDTH), F32), REGULAR
    return sparse(mesh, kernel, array((ROWS, WIDTH)), *scratch)(x)
""",
    arrays={"x": "normal(keys, ROWS, WIDTH)"},
    reference="jnp.roll(x, EACH, axis=0)",
    wrong={
        "the first one signals nobody": (
            (
                "        pl.semaphore_signal(there, 1, core_index=lax.rem(subcore + 1, count))\n",
                "        pl.when(subcore > 0)(\n"
                "            lambda: pl.semaphore_signal(there, 1, core_index=lax.rem(subcore + 1, count))\n"
                "        )\n",
            ),
        ),
        "each signals itself": (("core_index=lax.rem(subcore + 1, count))", "core_index=subcore)"),),
        "the subcore is named as a device, which JAX drops": (
            ("core_index=lax.rem(subcore + 1, count))", 'device_id={"subcore": lax.rem(subcore + 1, count)})'),
            ("EACH, WIDTH), F32), REGULAR", "EACH, WIDTH), F32), REGULAR @ mesh"),
        ),
        "two are waited for": (("pl.semaphore_wait(there, 1)", "pl.semaphore_wait(there, 2)"),),
        "one signal too many is left": (("pl.semaphore_signal(there, 1,", "pl.semaphore_signal(there, 2,"),),
        "the signal comes before the rows": (
            ("        pltpu.sync_copy(mine, shared.at[rows(subcore)])\n", ""),
            (
                "        pl.semaphore_wait(there, 1)\n",
                "        pltpu.sync_copy(mine, shared.at[rows(subcore)])\n        pl.semaphore_wait(there, 1)\n",
            ),
        ),
    },
)
CHAIN = Program(
    name="a running sum of rows handed from subcore to subcore",
    body="""
ROWS, SIZE = 16, 1024


def kernel_fn(x):
    mesh = subcores(num_cores=1)

    def kernel(x, o, sums, mine, before, turn):
        subcore = lax.axis_index("subcore")
        pltpu.sync_copy(x.at[pl.ds(subcore * SIZE, SIZE)], mine)

        @pl.when(subcore > 0)
        def _():
            pl.semaphore_wait(turn, 1)
            pltpu.sync_copy(sums.at[pl.ds((subcore - 1) * SIZE, SIZE)], before)

            @vectors(SIZE)
            def _(some):
                mine[some] = mine[some] + before[some]

        pltpu.sync_copy(mine, sums.at[pl.ds(subcore * SIZE, SIZE)])

        @pl.when(subcore < mesh.num_subcores - 1)
        def _():
            pl.semaphore_signal(turn, 1, core_index=subcore + 1)

        pltpu.sync_copy(mine, o.at[pl.ds(subcore * SIZE, SIZE)])

    scratch = SHARED((ROWS * SIZE,), F32), VMEM((SIZE,), F32), VMEM((SIZE,), F32), REGULAR
    return sparse(mesh, kernel, array((ROWS * SIZE,)), *scratch)(x)
""",
    arrays={"x": "normal(keys, ROWS * SIZE)"},
    reference="jnp.cumsum(x.reshape(ROWS, SIZE), axis=0).reshape(-1)",
    wrong={
        "the first one waits, too": (
            ("            pl.semaphore_wait(turn, 1)\n", ""),
            (
                "        @pl.when(subcore > 0)\n",
                "        pl.semaphore_wait(turn, 1)\n\n        @pl.when(subcore > 0)\n",
            ),
        ),
        "nobody waits for its turn": (
            ("            pl.semaphore_wait(turn, 1)\n", ""),
            (
                "SIZE)])\n\n    scratch",
                "SIZE)])\n        pl.when(subcore > 0)(lambda: pl.semaphore_wait(turn, 1))\n\n    scratch",
            ),
        ),
        "the sum of the first alone": (("sums.at[pl.ds((subcore - 1) * SIZE, SIZE)]", "sums.at[pl.ds(0, SIZE)]"),),
    },
)
QUEUE = Program(
    name="blocks dealt out by a counter",
    body="""
BLOCKS, SIZE = 64, 1024


def kernel_fn(x):
    mesh = subcores(num_cores=1)
    turns = BLOCKS // mesh.num_subcores

    def kernel(x, o, block, counter):
        counter[0] = 0
        plsc.subcore_barrier()

        @pl.loop(0, turns)
        def _(_):
            mine = pl.ds(plsc.fetch_and_add(counter.at[0], 1, subcore_id=0) * SIZE, SIZE)
            pltpu.sync_copy(x.at[mine], block)

            @vectors(SIZE)
            def _(some):
                block[some] = block[some] * block[some]

            pltpu.sync_copy(block, o.at[mine])

    return sparse(mesh, kernel, array((BLOCKS * SIZE,)), VMEM((SIZE,), F32), SMEM((1,), I32))(x)
""",
    arrays={"x": "normal(keys, BLOCKS * SIZE)"},
    reference="x * x",
    wrong={
        "a counter that some have advanced is set to zero": (("        plsc.subcore_barrier()\n", ""),),
        "each has its own counter": (("subcore_id=0)", 'subcore_id=lax.axis_index("subcore"))'),),
        "one block too many": (("pl.loop(0, turns)", "pl.loop(0, turns + 1)"),),
    },
)
SHARES = (HISTOGRAM, PREFIX, HALO, SIGNALS, CHAIN, QUEUE)
