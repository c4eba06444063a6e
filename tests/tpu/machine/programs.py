"""Small programs whose schedules are kept as golden dumps. Importing this needs jax but no TPU compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

Program = tuple[Callable[..., Any], tuple[tuple[tuple[int, ...], Any], ...]]


def _flash(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Causal flash attention, 8 x 4 grid steps of which 20 compute."""
    (length, width), bq, bkv = q.shape, 128, 256

    def body(q, k, v, o, m, l, acc):  # type: ignore[no-untyped-def]  # noqa: E741
        i, j = pl.program_id(0), pl.program_id(1)

        @pl.when(j == 0)
        def _() -> None:
            m[...] = jnp.full_like(m, -jnp.inf)
            l[...] = jnp.zeros_like(l)
            acc[...] = jnp.zeros_like(acc)

        @pl.when(j * bkv < (i + 1) * bq)
        def _() -> None:
            s = lax.dot_general(q[...], k[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
            rows = i * bq + lax.broadcasted_iota(jnp.int32, s.shape, 0)
            columns = j * bkv + lax.broadcasted_iota(jnp.int32, s.shape, 1)
            s = jnp.where(columns <= rows, s, -1e30)
            top = jnp.maximum(m[...], s.max(-1, keepdims=True))
            p, scale = jnp.exp(s - top), jnp.exp(m[...] - top)
            l[...] = l[...] * scale + p.sum(-1, keepdims=True)
            acc[...] = acc[...] * scale + jnp.dot(p.astype(v.dtype), v[...], preferred_element_type=jnp.float32)
            m[...] = top

        @pl.when(j == pl.num_programs(1) - 1)
        def _() -> None:
            o[...] = (acc[...] / l[...]).astype(o.dtype)

    return pl.pallas_call(
        body,
        grid=(length // bq, length // bkv),
        in_specs=[
            pl.BlockSpec((bq, width), lambda i, j: (i, 0)),
            pl.BlockSpec((bkv, width), lambda i, j: (j, 0)),
            pl.BlockSpec((bkv, width), lambda i, j: (j, 0)),
        ],
        out_specs=pl.BlockSpec((bq, width), lambda i, j: (i, 0)),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        scratch_shapes=[
            pltpu.VMEM((bq, 1), jnp.float32),
            pltpu.VMEM((bq, 1), jnp.float32),
            pltpu.VMEM((bq, width), jnp.float32),
        ],
    )(q, k, v)


def _double(x: jax.Array) -> jax.Array:
    def body(x, o):  # type: ignore[no-untyped-def]
        o[...] = x[...] * 2

    block = pl.BlockSpec((64, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        body, grid=(x.shape[0] // 64,), in_specs=[block], out_specs=block,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
    )(x)  # fmt: skip


def _whole(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """XLA's own ops and copies around two kernels; two results."""
    y = _double(x).T.astype(jnp.bfloat16)
    return _double(y), x.sum(0)


def _prefetch(which: jax.Array, x: jax.Array) -> jax.Array:
    """Blocks chosen, and work skipped, by an input."""

    def body(which, x, o):  # type: ignore[no-untyped-def]
        @pl.when(which[pl.program_id(0)] > 1)
        def _() -> None:
            o[...] = x[...] * 2

    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(4,),
        in_specs=[pl.BlockSpec((64, 128), lambda i, which: (which[i], 0))],
        out_specs=pl.BlockSpec((64, 128), lambda i, which: (i, 0)),
    )
    return pl.pallas_call(body, grid_spec=spec, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(which, x)


def _loop(x: jax.Array, n: jax.Array) -> jax.Array:
    """A kernel inside a loop whose trip count is an input."""
    return lax.fori_loop(0, n, lambda _, x: _double(x), x)


def _manual(x: jax.Array) -> jax.Array:
    """Copies and semaphores by hand."""

    def body(x, o, buffer, flags):  # type: ignore[no-untyped-def]
        def copy(i, slot):  # type: ignore[no-untyped-def]
            return pltpu.make_async_copy(x.at[pl.ds(i * 64, 64)], buffer.at[slot], flags.at[slot])

        copy(0, 0).start()

        def step(i, carry):  # type: ignore[no-untyped-def]
            slot = lax.rem(i, 2)

            @pl.when(i + 1 < 4)
            def _() -> None:
                copy(i + 1, 1 - slot).start()

            copy(i, slot).wait()
            buffer[slot] = buffer[slot] * 2
            pltpu.sync_copy(buffer.at[slot], o.at[pl.ds(i * 64, 64)])
            return carry

        lax.fori_loop(0, 4, step, 0)

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        body, in_specs=[anywhere], out_specs=anywhere, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        scratch_shapes=[pltpu.VMEM((2, 64, x.shape[1]), x.dtype), pltpu.SemaphoreType.DMA((2,))],
    )(x)  # fmt: skip


def _deadlock(x: jax.Array) -> jax.Array:
    """Waits for a copy that nobody started."""

    def body(x, o, flag):  # type: ignore[no-untyped-def]
        pltpu.make_async_copy(x, o, flag).wait()

    return pl.pallas_call(
        body, in_specs=[pl.BlockSpec(memory_space=pl.ANY)], out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        scratch_shapes=[pltpu.SemaphoreType.DMA],
    )(x)  # fmt: skip


def _computed(x: jax.Array) -> jax.Array:
    """A branch that depends on a value which vector code computes."""

    def body(x, o):  # type: ignore[no-untyped-def]
        largest = jnp.max(x[...])

        @pl.when(largest > 0)
        def _() -> None:
            o[...] = x[...] * largest

        @pl.when(largest <= 0)
        def _() -> None:
            o[...] = jnp.exp(x[...]) + jnp.log(x[...])

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def _endless(x: jax.Array) -> jax.Array:
    """A loop of XLA's whose length depends on a computed value."""
    return lax.while_loop(lambda x: x.sum() < 1e3, lambda x: x * 2, x)


def _constant(x: jax.Array) -> jax.Array:
    """Scalar prefetch from a constant of the program."""
    return _prefetch(jnp.array([3, 0, 2, 1], jnp.int32), x)


def _large(x: jax.Array) -> jax.Array:
    """Rows out of 8 GiB: beside so much, XLA does not inline the kernel into the program, but calls it."""

    def body(x, o, done):  # type: ignore[no-untyped-def]
        copy = pltpu.make_async_copy(x.at[pl.ds(0, 8)], o, done)
        copy.start()
        copy.wait()

    return pl.pallas_call(
        body,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_shape=jax.ShapeDtypeStruct((8, 128), x.dtype),
        scratch_shapes=[pltpu.SemaphoreType.DMA],
    )(x)


def _odd(x: jax.Array) -> jax.Array:
    """Seven rows in bfloat16: half of a register's last sublane is stored."""

    def body(x, o):  # type: ignore[no-untyped-def]
        o[...] = x[...].astype(o.dtype)

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct((7, 128), jnp.bfloat16))(x)


def _scalars(s: jax.Array, n: jax.Array, x: jax.Array) -> jax.Array:
    """A loop whose length is computed from floats, floor((s0 s1 - s2) clipped) + clz(n0), and a branch on one."""

    def body(s, n, x, o):  # type: ignore[no-untyped-def]
        times = jnp.floor(jnp.clip(s[0] * s[1] - s[2], -1.0, s[3])).astype(jnp.int32) + lax.clz(n[0])
        o[...] = lax.fori_loop(0, times, lambda _, total: total * 0.5 + x[...], jnp.zeros_like(x))

        @pl.when(s[4] + s[5] > 0)
        def _() -> None:
            o[...] = jnp.exp(o[...])

    scalars = pl.BlockSpec(memory_space=pltpu.SMEM)
    specs = [scalars, scalars, pl.BlockSpec(memory_space=pltpu.VMEM)]
    return pl.pallas_call(body, in_specs=specs, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(s, n, x)


_SEQUENCE = ((1024, 128), jnp.bfloat16)
_MATRIX = ((256, 128), jnp.float32)

PROGRAMS: dict[str, Program] = {
    "flash": (_flash, (_SEQUENCE, _SEQUENCE, _SEQUENCE)),
    "whole": (_whole, (((256, 256), jnp.float32),)),
    "prefetch": (_prefetch, (((4,), jnp.int32), _MATRIX)),
    "loop": (_loop, (_MATRIX, ((), jnp.int32))),
    "manual": (_manual, (_MATRIX,)),
    "deadlock": (_deadlock, (_MATRIX,)),
    "computed": (_computed, (_MATRIX,)),
    "endless": (_endless, (_MATRIX,)),
    "constant": (_constant, (_MATRIX,)),
    "scalars": (_scalars, (((8,), jnp.float32), ((8,), jnp.int32), _MATRIX)),
    "odd": (_odd, (((7, 128), jnp.float32),)),
    "large": (_large, (((2**24, 128), jnp.float32),)),
}
