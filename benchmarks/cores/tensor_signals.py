"""What one TensorCore of a v5p hands to the other: blocks, carries and counts, with signals."""

from __future__ import annotations

from benchmarks.cores.program import TWO_CORES, Program

HANDED = Program(
    name="one core makes blocks, the other takes them",
    body="""
STEPS, ROWS, WIDTH = 8, 128, 256


def kernel_fn(x, y):
    def kernel(x, y, o, passed, block, other, moved, full, free):
        @pl.when(me() == 0)
        def _():
            @pl.loop(0, STEPS)
            def _(step):
                copied(x.at[step], block, moved)
                block[...] = block[...] * block[...]
                pl.when(step > 1)(lambda: pl.semaphore_wait(free, 1))
                copied(block, passed.at[lax.rem(step, 2)], moved)
                pl.semaphore_signal(full, 1, core_index=1)

        @pl.when(me() == 1)
        def _():
            @pl.loop(0, STEPS)
            def _(step):
                copied(y.at[step], other, moved)
                pl.semaphore_wait(full, 1)
                copied(passed.at[lax.rem(step, 2)], block, moved)
                pl.when(step < STEPS - 2)(lambda: pl.semaphore_signal(free, 1, core_index=0))
                block[...] = block[...] + other[...]
                copied(block, o.at[step], moved)

    block = VMEM((ROWS, WIDTH), F32)
    out = array((STEPS, ROWS, WIDTH)), array((2, ROWS, WIDTH))
    return on(cores(), kernel, out, block, block, DMA, REGULAR, REGULAR)(x, y)[0]
""",
    arrays={"x": "normal(keys, STEPS, ROWS, WIDTH)", "y": "normal(keys, STEPS, ROWS, WIDTH)"},
    reference="x * x + y",
    chips=TWO_CORES,
    wrong={
        "a block is taken before it is made": (
            ("                pl.semaphore_wait(full, 1)\n", ""),
            (
                "                copied(block, o.at[step], moved)\n",
                "                copied(block, o.at[step], moved)\n                pl.semaphore_wait(full, 1)\n",
            ),
        ),
        "a block is made over one that is not taken": (
            ("                pl.when(step > 1)(lambda: pl.semaphore_wait(free, 1))\n", ""),
            ("                pl.when(step < STEPS - 2)(lambda: pl.semaphore_signal(free, 1, core_index=0))\n", ""),
        ),
        "the taker says once too often that there is room": (("step < STEPS - 2)", "step < STEPS - 1)"),),
        "the first two wait for room, too": (("step > 1)", "step >= 0)"),),
        "the taker tells itself that there is room": (("free, 1, core_index=0)", "free, 1, core_index=1)"),),
        "one block's room": (
            ("copied(block, passed.at[lax.rem(step, 2)], moved)", "copied(block, passed.at[0], moved)"),
            ("copied(passed.at[lax.rem(step, 2)], block", "copied(passed.at[0], block"),
        ),
    },
)
PING_PONG = Program(
    name="what two cores pass to each other in a loop",
    body="""
ROUNDS, ROWS, WIDTH = 6, 128, 256


def kernel_fn(x):
    def kernel(x, o, mail, own, mine, got, moved, there):
        copied(x.at[me()], own, moved)
        mine[...] = own[...]

        @pl.loop(0, ROUNDS)
        def _(turn):
            slot = 2 * lax.rem(turn, 2)
            copied(mine, mail.at[slot + 1 - me()], moved)
            pl.semaphore_signal(there, 1, core_index=1 - me())
            pl.semaphore_wait(there, 1)
            copied(mail.at[slot + me()], got, moved)
            mine[...] = got[...] * 0.5 + own[...]

        copied(mine, o.at[me()], moved)

    block = VMEM((ROWS, WIDTH), F32)
    out = array((2, ROWS, WIDTH)), array((4, ROWS, WIDTH))
    return on(cores(), kernel, out, block, block, block, DMA, REGULAR)(x)[0]


def expected(x):
    value = x
    for _ in range(ROUNDS):
        value = value[::-1] * 0.5 + x
    return value
""",
    arrays={"x": "normal(keys, 2, ROWS, WIDTH)"},
    reference="expected(x)",
    chips=TWO_CORES,
    wrong={
        "one slot": (("slot = 2 * lax.rem(turn, 2)", "slot = 0"),),
        "the signal comes before the block": (
            (
                "            copied(mine, mail.at[slot + 1 - me()], moved)\n"
                "            pl.semaphore_signal(there, 1, core_index=1 - me())\n",
                "            pl.semaphore_signal(there, 1, core_index=1 - me())\n"
                "            copied(mine, mail.at[slot + 1 - me()], moved)\n",
            ),
        ),
        "each waits before it signals": (
            (
                "            pl.semaphore_signal(there, 1, core_index=1 - me())\n"
                "            pl.semaphore_wait(there, 1)\n",
                "            pl.semaphore_wait(there, 1)\n"
                "            pl.semaphore_signal(there, 1, core_index=1 - me())\n",
            ),
        ),
        "a last signal that nobody waits for": (
            (
                "        copied(mine, o.at[me()], moved)\n",
                "        pl.semaphore_signal(there, 1, core_index=1 - me())\n        copied(mine, o.at[me()], moved)\n",
            ),
        ),
        "each reads its own": (("copied(mail.at[slot + me()], got", "copied(mail.at[slot + 1 - me()], got"),),
    },
)
COUNTS = Program(
    name="counts of both cores, added by the first",
    body="""
ROWS, WIDTH, BINS = 2048, 256, 16
HALF = ROWS // 2


def kernel_fn(x):
    def kernel(x, o, counted, rows, counts, other, moved, there):
        copied(x.at[pl.ds(me() * HALF, HALF)], rows, moved)
        for bin in range(BINS):
            counts[bin : bin + 1] = jnp.sum((rows[...] == bin).astype(I32), axis=0, keepdims=True)

        @pl.when(me() == 1)
        def _():
            copied(counts, counted, moved)
            pl.semaphore_signal(there, 1, core_index=0)

        @pl.when(me() == 0)
        def _():
            pl.semaphore_wait(there, 1)
            copied(counted, other, moved)
            counts[...] = counts[...] + other[...]
            copied(counts, o, moved)

    table = array((BINS, WIDTH), I32)
    scratch = VMEM((HALF, WIDTH), I32), VMEM((BINS, WIDTH), I32), VMEM((BINS, WIDTH), I32), DMA, REGULAR
    return on(cores(), kernel, (table, table), *scratch)(x)[0]
""",
    arrays={"x": "below(BINS, keys, ROWS, WIDTH)"},
    reference="(x[None] == jnp.arange(BINS)[:, None, None]).sum(1).astype(I32)",
    chips=TWO_CORES,
    wrong={
        "the first does not wait": (
            ("            pl.semaphore_wait(there, 1)\n", ""),
            (
                "            copied(counts, o, moved)\n",
                "            copied(counts, o, moved)\n            pl.semaphore_wait(there, 1)\n",
            ),
        ),
        "the second signals itself": (("there, 1, core_index=0)", "there, 1, core_index=1)"),),
        "nobody takes the signal": (("            pl.semaphore_wait(there, 1)\n", ""),),
        "the signal comes while the counts leave": (
            (
                "            copied(counts, counted, moved)\n            pl.semaphore_signal(there, 1, core_index=0)\n",
                "            copy = pltpu.make_async_copy(counts, counted, moved)\n            copy.start()\n"
                "            pl.semaphore_signal(there, 1, core_index=0)\n            copy.wait()\n",
            ),
        ),
    },
)
CARRY = Program(
    name="running sum of blocks, a carry from core to core",
    body="""
BLOCKS, ROWS, WIDTH = 16, 64, 256
EACH = BLOCKS // 2


def kernel_fn(x):
    def kernel(x, o, passed, blocks, carry, moved, there):
        mine = pl.ds(me() * EACH, EACH)
        copied(x.at[mine], blocks, moved)

        @pl.loop(1, EACH)
        def _(step):
            blocks[step] = blocks[step] + blocks[step - 1]

        @pl.when(me() == 0)
        def _():
            copied(blocks.at[EACH - 1], passed, moved)
            pl.semaphore_signal(there, 1, core_index=1)

        @pl.when(me() == 1)
        def _():
            pl.semaphore_wait(there, 1)
            copied(passed, carry, moved)
            blocks[...] = blocks[...] + carry[...][None]

        copied(blocks, o.at[mine], moved)

    out = array((BLOCKS, ROWS, WIDTH)), array((ROWS, WIDTH))
    scratch = VMEM((EACH, ROWS, WIDTH), F32), VMEM((ROWS, WIDTH), F32), DMA, REGULAR
    return on(cores(), kernel, out, *scratch)(x)[0]
""",
    arrays={"x": "normal(keys, BLOCKS, ROWS, WIDTH)"},
    reference="jnp.cumsum(x, axis=0)",
    chips=TWO_CORES,
    wrong={
        "the carry of the second": (
            (
                "            copied(blocks.at[EACH - 1], passed, moved)\n"
                "            pl.semaphore_signal(there, 1, core_index=1)\n",
                "            pl.semaphore_signal(there, 1, core_index=1)\n",
            ),
            (
                "            copied(passed, carry, moved)\n",
                "            copied(blocks.at[EACH - 1], passed, moved)\n            copied(passed, carry, moved)\n",
            ),
        ),
        "the carry is not waited for": (
            ("            pl.semaphore_wait(there, 1)\n", ""),
            (
                "        copied(blocks, o.at[mine], moved)\n",
                "        copied(blocks, o.at[mine], moved)\n"
                "        pl.when(me() == 1)(lambda: pl.semaphore_wait(there, 1))\n",
            ),
        ),
        "the carry lacks the last block": (("blocks.at[EACH - 1], passed", "blocks.at[EACH - 2], passed"),),
        "scratch is taken for shared": (
            (
                "            copied(blocks.at[EACH - 1], passed, moved)\n",
                "            carry[...] = blocks[EACH - 1]\n            copied(carry, passed, moved)\n",
            ),
            ("            copied(passed, carry, moved)\n", ""),
        ),
    },
)
STARTED = Program(
    name="a copy that one core makes and the other reads",
    body="""
ROWS, WIDTH = 512, 512


def kernel_fn(x):
    def kernel(x, o, copy, block, moved, made):
        @pl.when(me() == 0)
        def _():
            copied(x, copy, moved)
            pl.semaphore_signal(made, 1, core_index=1)
            copied(x.at[pl.ds(0, ROWS // 2)], block, moved)

        @pl.when(me() == 1)
        def _():
            pl.semaphore_wait(made, 1)
            copied(copy.at[pl.ds(ROWS // 2, ROWS // 2)], block, moved)

        block[...] = 1 - block[...]
        copied(block, o.at[pl.ds(me() * (ROWS // 2), ROWS // 2)], moved)

    out = array((ROWS, WIDTH)), array((ROWS, WIDTH))
    return on(cores(), kernel, out, VMEM((ROWS // 2, WIDTH), F32), DMA, REGULAR)(x)[0]
""",
    arrays={"x": "normal(keys, ROWS, WIDTH)"},
    reference="1 - x",
    chips=TWO_CORES,
    wrong={
        "it is read before it was waited for": (
            (
                "            copied(x, copy, moved)\n            pl.semaphore_signal(made, 1, core_index=1)\n",
                "            making = pltpu.make_async_copy(x, copy, moved)\n            making.start()\n"
                "            pl.semaphore_signal(made, 1, core_index=1)\n            making.wait()\n",
            ),
        ),
        "the second waits for the first one's copy": (
            (
                "            copied(x, copy, moved)\n            pl.semaphore_signal(made, 1, core_index=1)\n",
                "            pltpu.make_async_copy(x, copy, moved).start()\n",
            ),
            ("            pl.semaphore_wait(made, 1)\n", "            pltpu.make_async_copy(x, copy, moved).wait()\n"),
        ),
        "half of it is made": (
            ("copied(x, copy, moved)", "copied(x.at[pl.ds(0, ROWS // 2)], copy.at[pl.ds(0, ROWS // 2)], moved)"),
        ),
    },
)
SIGNALS = (HANDED, PING_PONG, COUNTS, CARRY, STARTED)
