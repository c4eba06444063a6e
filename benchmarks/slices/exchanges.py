"""Rings, all-to-all, edges and broadcasts, and kernels beside XLA's collectives."""

from __future__ import annotations

from benchmarks.slices.program import Program

_ALL_WAITED_FOR = "    for copy in copies:\n        copy.wait()"
_ONE_ARRIVAL_TOO_FEW = (
    "    for copy in copies:\n        copy.wait_send()\n    for copy in copies[1:]:\n        copy.wait_recv()"
)
_PAST_THE_LAST = """    copies[-1] = pltpu.make_async_remote_copy(
        part(x, me(), each), part(o, me(), each), sent, arrived,
        device_id=(me() + N - 1,), device_id_type=pl.DeviceIdType.MESH,
    )
"""
NO_MEETING = "no barrier before the first copy, nor the compiler's"

RING = Program(
    name="all-gather in a ring",
    body="""
def kernel(x, o, copied, sent, arrived):
    here(x, part(o, me()), copied)
    meet(me() + 1, me() - 1)
    for step in range(N - 1):
        rows = part(o, me() - step)
        copy = send(rows, rows, sent.at[step], arrived.at[step], me() + 1)
        copy.start()
        copy.wait()


def local(x):
    return call(kernel, ALL, [DMA, DMA((N - 1,)), DMA((N - 1,))])(x)
""",
    reference="x",
    out="P()",
    wrong={
        NO_MEETING: (("    meet(me() + 1, me() - 1)\n", "    meet(me())\n"), ("])(x)", "], skip=True)(x)")),
        "the wrong neighbour": (("arrived.at[step], me() + 1)", "arrived.at[step], me() + 2)"),),
        "one step too few": (("range(N - 1):", "range(N - 2):"),),
        "what has not arrived is passed on": (("        copy.wait()\n", "        copy.wait_send()\n"),),
        "a barrier that waits for one signal too many": (
            (
                "    meet(me() + 1, me() - 1)\n",
                "    meet(me() + 1, me() - 1)\n    pl.semaphore_wait(pltpu.get_barrier_semaphore(), 1)\n",
            ),
        ),
        "a wait for the wrong step": (
            (
                "        copy.wait()\n",
                "        copy.wait_send()\n        send(rows, rows, sent.at[0], arrived.at[0], me() + 1).wait_recv()\n",
            ),
        ),
    },
)
BOTH_WAYS = Program(
    name="all-gather in both directions",
    body="""
def kernel(x, o, copied, sent, arrived):
    here(x, part(o, me()), copied)
    meet(me() + 1, me() - 1)

    def half(chip, way, step, towards):
        first = jax.lax.rem(chip + N, N) * ROWS + way * (ROWS // 2)
        rows = o.at[pl.ds(first, ROWS // 2)]
        return send(rows, rows, sent.at[way, step], arrived.at[way, step], towards)

    for step in range(N - 1):
        copies = half(me() - step, 0, step, me() + 1), half(me() + step, 1, step, me() - 1)
        for copy in copies:
            copy.start()
        for copy in copies:
            copy.wait()


def local(x):
    return call(kernel, ALL, [DMA, DMA((2, N - 1)), DMA((2, N - 1))])(x)
""",
    reference="x",
    out="P()",
    wrong={
        "one direction passes on what it has not got": (
            ("half(me() + step, 1, step, me() - 1)", "half(me() - step, 1, step, me() - 1)"),
        ),
        "one direction goes the wrong way": (
            ("half(me() + step, 1, step, me() - 1)", "half(me() + step, 1, step, me() + 1)"),
        ),
        "halves overlap": (("way * (ROWS // 2)\n", "way * (ROWS // 4)\n"),),
    },
)
DIRECT = Program(
    name="all-gather, straight to everybody",
    body="""
def kernel(x, o, copied, sent, arrived):
    everybody()
    copies = [send(x, part(o, me()), sent, arrived.at[step], me() + step) for step in range(1, N)]
    for copy in copies:
        copy.start()
    here(x, part(o, me()), copied)
    for copy in copies:
        copy.wait()


def local(x):
    return call(kernel, ALL, [DMA, DMA, DMA((N,))])(x)
""",
    reference="x",
    out="P()",
    wrong={
        NO_MEETING: (("    everybody()\n", "    meet(me())\n"), ("])(x)", "], skip=True)(x)")),
        "the last one is not waited for": ((_ALL_WAITED_FOR, _ALL_WAITED_FOR.replace("copies", "copies[:-1]")),),
        "all to one place": (("send(x, part(o, me()), sent", "send(x, part(o, step), sent"),),
    },
)
ALL_TO_ALL = Program(
    name="all-to-all, straight",
    body="""
def kernel(x, o, copied, sent, arrived):
    each = ROWS // N
    everybody()
    copies = []
    for step in range(1, N):
        other = jax.lax.rem(me() + step, N)
        copies.append(send(part(x, other, each), part(o, me(), each), sent, arrived, other))
    for copy in copies:
        copy.start()
    here(part(x, me(), each), part(o, me(), each), copied)
    for copy in copies:
        copy.wait()


def local(x):
    return call(kernel, ROWS, [DMA, DMA, DMA])(x)
""",
    reference="parts.reshape(N, N, ROWS // N, WIDTH).transpose(1, 0, 2, 3).reshape(ALL, WIDTH)",
    wrong={
        NO_MEETING: (("    everybody()\n", "    meet(me())\n"), ("])(x)", "], skip=True)(x)")),
        "the sender's place is the receiver's": (("part(o, me(), each), sent", "part(o, other, each), sent"),),
        "an index past the last chip": (("arrived, other))\n", f"arrived, other))\n{_PAST_THE_LAST}"),),
        "its own part stays away": (("    here(part(x, me(), each), part(o, me(), each), copied)\n", ""),),
        "one arrival too few": ((_ALL_WAITED_FOR, _ONE_ARRIVAL_TOO_FEW),),
    },
)
REDUCE = Program(
    name="reduce-scatter in a ring",
    body="""
def kernel(x, o, own, travelling, got, copied, sent, arrived, free):
    each = ROWS // N
    meet(me() + 1, me() - 1)
    for step in range(N - 1):
        here(part(x, me() - 1 - step, each), own, copied)
        travelling[...] = own[...] + got[(step - 1) % 2] if step else own[...]
        if step >= 2:
            pl.semaphore_wait(free, 1)
        copy = send(travelling, got.at[step % 2], sent, arrived.at[step % 2], me() + 1)
        copy.start()
        copy.wait()
        if 1 <= step < N - 2:
            pl.semaphore_signal(free, 1, **to(me() - 1))
    here(part(x, me(), each), own, copied)
    travelling[...] = own[...] + got[(N - 2) % 2]
    here(travelling, o, copied)


def local(x):
    part_of = pltpu.VMEM((ROWS // N, WIDTH), jnp.float32)
    two = pltpu.VMEM((2, ROWS // N, WIDTH), jnp.float32)
    return call(kernel, ROWS // N, [part_of, part_of, two, DMA, DMA, DMA((2,)), pltpu.SemaphoreType.REGULAR])(x)
""",
    reference="parts.sum(0)",
    wrong={
        "a slot is written before it was read": (
            ("        if step >= 2:\n            pl.semaphore_wait(free, 1)\n", ""),
            ("        if 1 <= step < N - 2:\n            pl.semaphore_signal(free, 1, **to(me() - 1))\n", ""),
        ),
        "one slot": (("got.at[step % 2], sent", "got.at[0], sent"),),
        "the sum is the step before's": (("own[...] + got[(step - 1) % 2] if", "own[...] + got[step % 2] if"),),
        "a semaphore too few": (("        if 1 <= step < N - 2:\n", "        if 2 <= step < N - 2:\n"),),
        "its own part twice": (
            ("    here(part(x, me(), each), own, copied)\n", "    here(part(x, me() + 1, each), own, copied)\n"),
        ),
    },
)
SHIFTING = """
def kernel(x, o, sent, arrived):
    meet(me() + 1, me() - 1)
    copy = send(x, o, sent, arrived, me() + 1)
    copy.start()
    copy.wait()
"""
SHIFT = Program(
    name="a shift by one",
    body=f"""{SHIFTING}

def local(x):
    return call(kernel, ROWS, [DMA, DMA])(x)
""",
    reference="jnp.roll(parts, 1, axis=0).reshape(ALL, WIDTH)",
    wrong={
        NO_MEETING: (("    meet(me() + 1, me() - 1)\n", "    meet(me())\n"), ("])(x)", "], skip=True)(x)")),
        "to the left": (("sent, arrived, me() + 1)", "sent, arrived, me() - 1)"),),
        "nobody waits for what arrives": (("    copy.wait()", "    copy.wait_send()"),),
        "the source may change while it is read": (("    copy.wait()", "    copy.wait_recv()"),),
    },
)
HALO = Program(
    name="the neighbours' edges",
    body="""
def kernel(x, o, above, below, edge, sent, arrived):
    meet(me() + 1, me() - 1)
    down = send(x.at[pl.ds(ROWS - 8, 8)], above, sent, arrived.at[0], me() + 1)
    up = send(x.at[pl.ds(0, 8)], below, sent, arrived.at[1], me() - 1)
    down.start()
    up.start()
    here(x, edge, arrived.at[2])
    down.wait()
    up.wait()
    o[...] = edge[...]
    o[pl.ds(0, 8)] = edge[pl.ds(0, 8)] + above[...]
    o[pl.ds(ROWS - 8, 8)] = edge[pl.ds(ROWS - 8, 8)] + below[...]


def local(x):
    eight, whole = pltpu.VMEM((8, WIDTH), jnp.float32), pltpu.VMEM((ROWS, WIDTH), jnp.float32)
    return call(kernel, ROWS, [eight, eight, whole, DMA, DMA((3,))], out=VMEM)(x)
""",
    reference=(
        "parts.at[:, :8].add(jnp.roll(parts, 1, 0)[:, -8:]).at[:, -8:].add(jnp.roll(parts, -1, 0)[:, :8])"
        ".reshape(ALL, WIDTH)"
    ),
    wrong={
        "edges are swapped": (("send(x.at[pl.ds(0, 8)], below", "send(x.at[pl.ds(ROWS - 8, 8)], below"),),
        "an edge is used before it is there": (("    up.wait()\n", "    up.wait_send()\n"),),
        NO_MEETING: (
            ("    meet(me() + 1, me() - 1)\n", "    meet(me())\n"),
            ("out=VMEM)(x)", "out=VMEM, skip=True)(x)"),
        ),
    },
)
BROADCAST = Program(
    name="a broadcast from the first",
    body="""
def kernel(x, o, copied, sent, arrived):
    everybody()
    first = me() == 0

    @pl.when(first)
    def _():
        copies = [send(x, o, sent, arrived, step) for step in range(1, N)]
        for copy in copies:
            copy.start()
        here(x, o, copied)
        for copy in copies:
            copy.wait_send()

    @pl.when(jnp.logical_not(first))
    def _():
        send(x, o, sent, arrived, 0).wait_recv()


def local(x):
    return call(kernel, ROWS, [DMA, DMA, DMA])(x)
""",
    reference="jnp.broadcast_to(parts[0], (N, ROWS, WIDTH)).reshape(ALL, WIDTH)",
    wrong={
        "the last one hears nothing": (("for step in range(1, N)]", "for step in range(1, N - 1)]"),),
        "from the second": (("    first = me() == 0\n", "    first = me() == 1\n"),),
    },
)
PAIRS = Program(
    name="pairs exchange",
    body="""
def kernel(x, o, sent, arrived):
    other = jnp.bitwise_xor(me(), 1)
    meet(other)
    copy = send(x, o, sent, arrived, other)
    copy.start()
    copy.wait()


def local(x):
    return call(kernel, ROWS, [DMA, DMA])(x)
""",
    reference="parts.reshape(N // 2, 2, ROWS, WIDTH)[:, ::-1].reshape(ALL, WIDTH)",
    wrong={"with itself": (("jnp.bitwise_xor(me(), 1)", "me()"),)},
)
_XLA = """
def kernel(x, o):
    o[...] = 2 * x[...]


def doubled(x):
    spec = pl.BlockSpec((8, x.shape[1]), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, out_shape=shape, grid=x.shape[0] // 8, in_specs=[spec], out_specs=spec)(x)


def local(x):
    return {collective}
"""


def _of_xla(name: str, collective: str, reference: str, out: str = 'P("chip")') -> Program:
    return Program(name=name, body=_XLA.format(collective=collective), reference=reference, out=out)


XLA = (
    _of_xla("a kernel, then XLA's sum", 'jax.lax.psum(doubled(x), "chip")', "2 * parts.sum(0)", "P()"),
    _of_xla("XLA's all-gather, then a kernel", 'doubled(jax.lax.all_gather(x, "chip", tiled=True))', "2 * x", "P()"),
    _of_xla(
        "a kernel, then XLA's reduce-scatter",
        'jax.lax.psum_scatter(doubled(x), "chip", scatter_dimension=0, tiled=True)',
        "2 * parts.sum(0)",
    ),
    _of_xla(
        "a kernel between XLA's permutations",
        'jax.lax.ppermute(doubled(jax.lax.ppermute(x, "chip", RING)), "chip", RING)',
        "2 * jnp.roll(parts, 2, axis=0).reshape(ALL, WIDTH)",
    ),
    _of_xla(
        "a kernel, then XLA's all-to-all",
        'jax.lax.all_to_all(doubled(x), "chip", 0, 0, tiled=True)',
        "2 * parts.reshape(N, N, ROWS // N, WIDTH).transpose(1, 0, 2, 3).reshape(ALL, WIDTH)",
    ),
)
EXCHANGES = (RING, BOTH_WAYS, DIRECT, ALL_TO_ALL, REDUCE, SHIFT, HALO, BROADCAST, PAIRS, *XLA)
