"""Other ways to name a chip, meshes of two axes, kernels that follow each other, tables that say where to."""

from __future__ import annotations

from benchmarks.slices.exchanges import SHIFTING
from benchmarks.slices.program import Program


def _named(name: str, how: str, what: str) -> Program:
    return Program(
        name=name,
        body=f"""
def kernel(x, o, sent, arrived):
    meet(me() + 1, me() - 1)
    target = jax.lax.rem(me() + 1, N)
    copy = pltpu.make_async_remote_copy(x, o, sent, arrived, {how})
    copy.start()
    copy.wait()


def local(x):
    return call(kernel, ROWS, [DMA, DMA])(x)
""",
        reference="jnp.roll(parts, 1, axis=0).reshape(ALL, WIDTH)",
        wrong={what: (("jax.lax.rem(me() + 1, N)", "me() + 1"),)},
    )


LOGICAL = _named(
    "a shift by one, chips by number",
    "device_id=target, device_id_type=pl.DeviceIdType.LOGICAL",
    "the last one sends past the end, by number",
)
BY_NAME = _named(
    "a shift by one, chips by name of the axis",
    'device_id={"chip": target}',
    "the last one sends past the end, by name",
)
TABLE = Program(
    name="a permutation that a table has",
    body="""
TO = tuple((3 * chip + 1) % N for chip in range(N))
FROM = tuple(TO.index(chip) for chip in range(N))


def entry(table):
    return sum(jnp.where(me() == chip, number, 0) for chip, number in enumerate(table))


def kernel(x, o, sent, arrived):
    meet(entry(TO), entry(FROM))
    copy = send(x, o, sent, arrived, entry(TO))
    copy.start()
    copy.wait()


def local(x):
    return call(kernel, ROWS, [DMA, DMA])(x)
""",
    reference="jnp.zeros_like(parts).at[jnp.array(TO)].set(parts).reshape(ALL, WIDTH)",
    wrong={
        "two send to one": (
            ("(3 * chip + 1) % N for chip", "(3 * chip + 1) % N if chip else 0 for chip"),
            ("TO.index(chip)", "(TO.index(chip) if chip in TO else 0)"),
        ),
        "it meets another than the one that sends": (
            ("(3 * chip + 1) % N for chip", "3 * chip + 1 for chip"),
            ("TO.index(chip)", "(chip * 3) % N"),
        ),
    },
)
TWO_AXES = Program(
    name="all-gather along one axis of two, then along the other",
    body="""
def kernel(x, o, copied, sent, arrived):
    first, second = jax.lax.axis_index("x"), jax.lax.axis_index("y")
    along_y, along_x = N // 2, 2

    def at(one, other):
        return dict(device_id={"x": jax.lax.rem(one, along_x), "y": jax.lax.rem(other, along_y)})

    barrier = pltpu.get_barrier_semaphore()
    others = [(first + i, second + j) for i in range(along_x) for j in range(along_y) if i + j]
    for other in others:
        pl.semaphore_signal(barrier, 1, **at(*other))
    pl.semaphore_wait(barrier, N - 1)
    mine = part(o, first * along_y + second)
    here(x, mine, copied)
    copies = [
        pltpu.make_async_remote_copy(mine, mine, sent, arrived.at[step], **at(first, second + step))
        for step in range(1, along_y)
    ]
    for copy in copies:
        copy.start()
    for copy in copies:
        copy.wait()
    half = o.at[pl.ds(first * along_y * ROWS, along_y * ROWS)]
    across = pltpu.make_async_remote_copy(half, half, sent, arrived.at[0], **at(first + 1, second))
    across.start()
    across.wait()


def local(x):
    return call(kernel, ALL, [DMA, DMA, DMA((N,))])(x)
""",
    reference="x",
    out="P()",
    rows='("x", "y")',
    mesh='"x": 2, "y": N // 2',
    wrong={
        "a half is sent before it is whole": (("        copy.wait()\n    half", "        copy.wait_send()\n    half"),),
        "along the wrong axis": (("**at(first + 1, second))", "**at(first, second + 1))"),),
    },
)
TWICE = Program(
    name="two kernels that send, one after the other",
    body=f"""{SHIFTING}

def local(x):
    return call(kernel, ROWS, [DMA, DMA], number=1)(2 * call(kernel, ROWS, [DMA, DMA])(x))
""",
    reference="2 * jnp.roll(parts, 2, axis=0).reshape(ALL, WIDTH)",
)
LOOP = Program(
    name="a kernel that sends, in a loop",
    body=f"""{SHIFTING}

def local(x):
    return jax.lax.fori_loop(0, 3, lambda _, value: call(kernel, ROWS, [DMA, DMA])(value), x)
""",
    reference="jnp.roll(parts, 3, axis=0).reshape(ALL, WIDTH)",
)
RAGGED = Program(
    name="all-to-all of as many rows as a table has",
    body="""
def kernel(table, x, o, nothing, copied, sent, arrived):
    each, blocks = ROWS // N, ROWS // N // 8
    nothing[...] = jnp.zeros_like(nothing)
    here(nothing, o, copied)
    everybody()

    def block(ref, chip, number):
        return ref.at[pl.ds(jax.lax.rem(chip + N, N) * each + number * 8, 8)]

    def passing(step, number):
        other = jax.lax.rem(me() + step, N)
        return send(block(x, other, number), block(o, me(), number), sent, arrived.at[step], other)

    def wanted(source, target):
        return table[jax.lax.rem(source + N, N), jax.lax.rem(target + N, N)]

    for step in range(N):
        for number in range(blocks):
            pl.when(number < wanted(me(), me() + step))(passing(step, number).start)
    for step in range(N):
        for number in range(blocks):
            pl.when(number < wanted(me(), me() + step))(passing(step, number).wait_send)
            pl.when(number < wanted(me() - step, me()))(passing(step, number).wait_recv)


def local(x):
    rows = jnp.arange(N)
    table = ((rows[:, None] + 2 * rows) % (ROWS // N // 8 + 1)).astype(jnp.int32)
    scratch = [pltpu.VMEM((ROWS, WIDTH), jnp.float32), DMA, DMA, DMA((N,))]
    return call(kernel, ROWS, scratch, specs=(pl.BlockSpec(memory_space=pltpu.SMEM), ANY))(table, x)
""",
    reference=(
        "jnp.where((jnp.arange(ROWS // N) // 8 < ((jnp.arange(N)[:, None] + 2 * jnp.arange(N)) % (ROWS // N // 8 + 1))"
        "[..., None])[..., None], parts.reshape(N, N, ROWS // N, WIDTH), 0).transpose(1, 0, 2, 3).reshape(ALL, WIDTH)"
    ),
    wrong={
        "the receiver counts what it sends": (
            ("wanted(me() - step, me()))(passing", "wanted(me(), me() + step))(passing"),
        ),
        "rows arrive while they are made zero": (
            ("    here(nothing, o, copied)\n    everybody()\n", "    everybody()\n    here(nothing, o, copied)\n"),
        ),
    },
)
COMPUTED = Program(
    name="as many rows as the chip's number",
    body="""
def rows_of(chip):
    return pl.ds(0, pl.multiple_of(8 * (jax.lax.rem(chip + N, N) + 1), 8))


def kernel(x, o, copied, sent, arrived):
    here(x, o, copied)
    meet(me() + 1, me() - 1)
    mine, theirs = rows_of(me()), rows_of(me() - 1)
    copy = send(x.at[mine], o.at[mine], sent, arrived, me() + 1)
    copy.start()
    copy.wait_send()
    send(x.at[theirs], o.at[theirs], sent, arrived, me() + 1).wait_recv()


def local(x):
    return call(kernel, ROWS, [DMA, DMA, DMA])(x)
""",
    reference=(
        "jnp.where(jnp.arange(ROWS)[:, None] < 8 * (jnp.roll(jnp.arange(N), 1) + 1)[:, None, None], "
        "jnp.roll(parts, 1, axis=0), parts).reshape(ALL, WIDTH)"
    ),
    wrong={
        "as many are waited for as were sent": (("rows_of(me()), rows_of(me() - 1)", "rows_of(me()), rows_of(me())"),),
        "its own rows are copied late": (
            ("    here(x, o, copied)\n    meet(me() + 1, me() - 1)\n", "    meet(me() + 1, me() - 1)\n"),
            ("rows_of(me() - 1)\n", "rows_of(me() - 1)\n    here(x, o, copied)\n"),
        ),
        "rows that are not there": (("8 * (jax.lax.rem(chip + N, N) + 1)", "8 * (jax.lax.rem(chip + N, N) + ROWS)"),),
    },
)
WAYS = (LOGICAL, BY_NAME, TABLE, TWO_AXES, TWICE, LOOP, RAGGED, COMPUTED)
