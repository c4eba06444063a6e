"""Sums over chips, along rings, trees, chains and in pairs; and what is passed on piece by piece."""

from __future__ import annotations

from benchmarks.slices.exchanges import NO_MEETING
from benchmarks.slices.program import Program

AROUND = Program(
    name="all-reduce in a ring",
    body="""
def kernel(x, o, own, total, got, copied, sent, arrived, gone, came):
    each = ROWS // N
    meet(me() + 1, me() - 1)
    for step in range(N - 1):
        here(part(x, me() - 1 - step, each), own, copied)
        total[...] = own[...] + got[step - 1] if step else own[...]
        copy = send(total, got.at[step], sent, arrived.at[step], me() + 1)
        copy.start()
        copy.wait()
    here(part(x, me(), each), own, copied)
    total[...] = own[...] + got[N - 2]
    here(total, part(o, me(), each), copied)
    for step in range(N - 1):
        rows = part(o, me() - step, each)
        copy = send(rows, rows, gone.at[step], came.at[step], me() + 1)
        copy.start()
        copy.wait()


def local(x):
    each = pltpu.VMEM((ROWS // N, WIDTH), jnp.float32)
    slots = pltpu.VMEM((N - 1, ROWS // N, WIDTH), jnp.float32)
    steps = DMA((N - 1,))
    return call(kernel, ROWS, [each, each, slots, DMA, DMA, steps, steps, steps])(x)
""",
    reference="parts.sum(0)",
    out="P()",
    wrong={
        "a sum changes while it is sent": (
            (
                "        copy.start()\n        copy.wait()\n    here",
                "        copy.start()\n        copy.wait_recv()\n    here",
            ),
        ),
        "the second round begins a step late": (
            ("rows = part(o, me() - step, each)", "rows = part(o, me() - step - 1, each)"),
        ),
    },
)
_LEVELS = """
def local(x):
    levels = N.bit_length() - 1
    whole, slots = pltpu.VMEM((ROWS, WIDTH), jnp.float32), pltpu.VMEM((levels, ROWS, WIDTH), jnp.float32)
    return call(kernel, ROWS, [whole, slots, DMA, DMA, DMA((levels,))])(x)
"""
PAIRS = Program(
    name="all-reduce in pairs, ever further apart",
    body="""
def kernel(x, o, mine, got, copied, sent, arrived):
    here(x, mine, copied)
    everybody()
    for level in range(N.bit_length() - 1):
        copy = send(mine, got.at[level], sent, arrived.at[level], jnp.bitwise_xor(me(), 1 << level))
        copy.start()
        copy.wait()
        mine[...] = mine[...] + got[level]
    here(mine, o, copied)

"""
    + _LEVELS,
    reference="parts.sum(0)",
    out="P()",
    wrong={
        "one slot for all levels": (
            ("got.at[level], sent", "got.at[0], sent"),
            ("mine[...] + got[level]", "mine[...] + got[0]"),
        ),
        "the last level stays away": (("range(N.bit_length() - 1):", "range(N.bit_length() - 2):"),),
        NO_MEETING: (("    everybody()\n", "    meet(me())\n"), ("DMA((levels,))])", "DMA((levels,))], skip=True)")),
    },
)
TREE = Program(
    name="a sum on the first, along a tree",
    body="""
def kernel(x, o, mine, got, copied, sent, arrived):
    here(x, mine, copied)
    everybody()
    for level in range(N.bit_length() - 1):
        apart = 1 << level
        place = jax.lax.rem(me(), 2 * apart)
        copy = send(mine, got.at[level], sent, arrived.at[level], me() - apart)

        @pl.when(place == apart)
        def _(copy=copy):
            copy.start()
            copy.wait_send()

        @pl.when(place == 0)
        def _(copy=copy, level=level):
            copy.wait_recv()
            mine[...] = mine[...] + got[level]

    @pl.when(me() == 0)
    def _():
        here(mine, o, copied)

    @pl.when(me() > 0)
    def _():
        here(x, o, copied)

"""
    + _LEVELS,
    reference="parts.at[0].set(parts.sum(0)).reshape(ALL, WIDTH)",
    wrong={
        "a sum is used before it is there": (("            copy.wait_recv()\n            mine", "            mine"),),
        "to the wrong parent": (("arrived.at[level], me() - apart)", "arrived.at[level], me() - 2 * apart)"),),
    },
)
BEFORE = Program(
    name="sums over the chips before",
    body="""
def kernel(x, o, mine, got, copied, sent, arrived):
    here(x, mine, copied)
    meet(me() + 1, me() - 1)
    copy = send(mine, got, sent, arrived, me() + 1)

    @pl.when(me() > 0)
    def _():
        copy.wait_recv()
        mine[...] = mine[...] + got[...]

    @pl.when(me() < N - 1)
    def _():
        copy.start()
        copy.wait_send()

    here(mine, o, copied)


def local(x):
    whole = pltpu.VMEM((ROWS, WIDTH), jnp.float32)
    return call(kernel, ROWS, [whole, whole, DMA, DMA, DMA])(x)
""",
    reference="jnp.cumsum(parts, axis=0).reshape(ALL, WIDTH)",
    wrong={
        "the last one sends, too": (("    @pl.when(me() < N - 1)\n", "    @pl.when(me() < N)\n"),),
        "the first one waits, too": (("    @pl.when(me() > 0)\n", "    @pl.when(me() >= 0)\n"),),
    },
)
_SAYS_SO = """        @pl.when(number < N - 2)
        def _():
            pl.semaphore_signal(free, 1, **to(me() - 1))

"""
CREDITS = Program(
    name="a sum of what goes round, in two slots",
    body="""
def kernel(x, o, slots, copied, sent, arrived, free):
    here(x, slots.at[0], copied)
    o[...] = slots[0]
    meet(me() + 1, me() - 1)

    def step(number, _):
        slot = jax.lax.rem(number, 2)

        @pl.when(number > 0)
        def _():
            pl.semaphore_wait(free, 1)

        copy = send(slots.at[slot], slots.at[1 - slot], sent, arrived.at[1 - slot], me() + 1)
        copy.start()
        copy.wait()
        o[...] += slots[1 - slot]

        @pl.when(number < N - 2)
        def _():
            pl.semaphore_signal(free, 1, **to(me() - 1))

        return 0

    jax.lax.fori_loop(0, N - 1, step, 0)


def local(x):
    two = pltpu.VMEM((2, ROWS, WIDTH), jnp.float32)
    return call(kernel, ROWS, [two, DMA, DMA, DMA((2,)), pltpu.SemaphoreType.REGULAR], out=VMEM)(x)
""",
    reference="parts.sum(0)",
    out="P()",
    wrong={
        "a slot is written one step early": (
            ("        @pl.when(number > 0)\n        def _():\n            pl.semaphore_wait(free, 1)\n\n", ""),
            (_SAYS_SO, ""),
        ),
        "a slot is said to be free too often": (
            ("        @pl.when(number < N - 2)\n", "        @pl.when(number < N - 1)\n"),
        ),
        "the wrong neighbour hears that a slot is free": (("free, 1, **to(me() - 1))", "free, 1, **to(me() + 1))"),),
    },
)
CHAIN = Program(
    name="a broadcast along a chain, in pieces",
    body="""
def kernel(x, o, copied, sent, arrived):
    meet(me() + 1, me() - 1)
    each, following = ROWS // 4, me() < N - 1

    @pl.when(me() == 0)
    def _():
        here(x, o, copied)

    def passing(piece):
        rows = o.at[pl.ds(piece * each, each)]
        return send(rows, rows, sent, arrived.at[piece], me() + 1)

    for piece in range(4):

        @pl.when(me() > 0)
        def _(piece=piece):
            passing(piece).wait_recv()

        @pl.when(following)
        def _(piece=piece):
            passing(piece).start()

    @pl.when(following)
    def _():
        for piece in range(4):
            passing(piece).wait_send()


def local(x):
    return call(kernel, ROWS, [DMA, DMA, DMA((4,))])(x)
""",
    reference="jnp.broadcast_to(parts[0], (N, ROWS, WIDTH)).reshape(ALL, WIDTH)",
    wrong={
        "a piece is passed on before it is there": (
            (
                "            passing(piece).wait_recv()\n",
                "            passing(0).wait_recv() if piece == 0 else None\n",
            ),
        ),
        "one piece too few": (("    for piece in range(4):\n\n", "    for piece in range(3):\n\n"),),
    },
)
DEAL = Program(
    name="the first one deals its rows out",
    body="""
def kernel(x, o, copied, sent, arrived):
    each = ROWS // N
    everybody()

    @pl.when(me() == 0)
    def _():
        copies = [send(part(x, chip, each), o, sent, arrived, chip) for chip in range(1, N)]
        for copy in copies:
            copy.start()
        here(part(x, 0, each), o, copied)
        for copy in copies:
            copy.wait_send()

    @pl.when(me() > 0)
    def _():
        send(part(x, 0, each), o, sent, arrived, 0).wait_recv()


def local(x):
    return call(kernel, ROWS // N, [DMA, DMA, DMA])(x)
""",
    reference="parts[0]",
    wrong={
        "everybody gets the same": (("send(part(x, chip, each), o", "send(part(x, 1, each), o"),),
        "nobody waits until all has left": (("        for copy in copies:\n            copy.wait_send()\n", ""),),
    },
)
SUMS = (AROUND, PAIRS, TREE, BEFORE, CREDITS, CHAIN, DEAL)
