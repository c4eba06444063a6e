"""Memory by an index for each lane, and lanes of which those that a mask names have consecutive elements."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.module import Op
from ratchet.tpu.mosaic.arrays import Array, Index, bits, decode
from ratchet.tpu.mosaic.events import Did
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.memory import Box, Ref
from ratchet.tpu.mosaic.rules import Unsupported


def undefined(executor: Executor, like: Array) -> Array:
    """As memory that was never written: what the documentation calls undefined."""
    dtype = np.dtype(like.dtype)
    if dtype == np.dtype(bool):
        return jnp.broadcast_to(executor.fill != 0, like.shape)
    return decode(executor.poison(like.shape, dtype), dtype)


def _box(places: Sequence[Array], mask: Array) -> Box:
    """Around the elements that lanes which take part use."""
    far = np.int32(2**31 - 1)
    low = [jnp.min(jnp.where(mask, place, far)) for place in places]
    high = [jnp.max(jnp.where(mask, place, -1)) for place in places]
    there = jnp.any(mask)
    return [jnp.where(there, a, 0) for a in low], [
        jnp.where(there, b - a + 1, 0) for a, b in zip(low, high, strict=True)
    ]


def _inside(executor: Executor, op: Op, ref: Ref, places: Sequence[Array], mask: Array, what: str) -> Array:
    """The lanes that take part and are inside; a finding where some are not."""
    good = functools.reduce(
        jnp.logical_and, [(p >= 0) & (p < size) for p, size in zip(places, ref.shape, strict=True)], jnp.ones((), bool)
    )
    executor.report(
        Kind.SLICE_OUT_OF_BOUNDS, op, jnp.any(mask & ~good), f"{what} by indices leaves a buffer of {tuple(ref.shape)}"
    )
    return mask & good


def gather(executor: Executor, op: Op, ref: Ref, places: Sequence[Array], mask: Array) -> Array:
    """Elements at ``places`` (one array for each dimension of ``ref``); undefined in lanes that do not take part."""
    mask = _inside(executor, op, ref, places, mask, "a load")
    inside = tuple(jnp.clip(place, 0, size - 1) for place, size in zip(places, ref.shape, strict=True))
    value = ref.load_all(executor.memory)[inside]
    executor.digest(op, jnp.where(mask, value, jnp.zeros((), value.dtype)))
    if op in executor.readers:
        executor.log_access(Did.READ, op, ref.buffer, ref.box(*_box(places, mask)))
    return jnp.where(mask, value, undefined(executor, value))


def scatter(
    executor: Executor, op: Op, ref: Ref, places: Sequence[Array], value: Array, mask: Array, *, adds: bool
) -> None:
    """Store ``value`` at ``places``, or add it; of lanes that store to the same element the highest wins."""
    mask = _inside(executor, op, ref, places, mask, "a store")
    if ref.buffer.is_input:
        executor.report(Kind.INPUT_WRITTEN, op, True, f"a store into input {ref.buffer.name}")
    flat, where = value.ravel(), [place.ravel() for place in places]
    if not adds:
        later = np.arange(flat.size)[:, None] < np.arange(flat.size)
        same = functools.reduce(jnp.logical_and, [place[:, None] == place for place in where])
        mask = mask & ~jnp.any(same & later & mask.ravel(), 1).reshape(mask.shape)
    box = ref.box(*_box(places, mask))
    executor.check_in_flight(op, ref.buffer, box, "a store into")
    executor.log_access(Did.WRITE, op, ref.buffer, box)
    old = ref.load_all(executor.memory)
    at = old.at[tuple(jnp.where(mask.ravel(), place, size) for place, size in zip(where, ref.shape, strict=True))]
    ref.store_all(executor.memory, at.add(flat, mode="drop") if adds else at.set(flat, mode="drop"))


def consecutive(op: Op, ref: Ref, starts: Sequence[Index], mask: Array, along: int) -> list[Array]:
    """Of each lane, where its element is: behind those of the lanes before it that take part, along a dimension."""
    if bits(ref.dtype) != 32:
        raise Unsupported(f"{op.name} with a mask of {ref.dtype}: several elements share a word and its mask")
    shape = (1,) * (len(ref.shape) - mask.ndim) + tuple(mask.shape)
    along += len(ref.shape) - mask.ndim
    count = jnp.cumsum(mask.reshape(shape).astype(jnp.int32), along) - 1
    places = [
        start + (count if dim == along else lax.broadcasted_iota(jnp.int32, shape, dim))
        for dim, start in enumerate(starts)
    ]
    return [place.reshape(mask.shape) for place in places]


def load_expanded(executor: Executor, op: Op, ref: Ref, starts: Sequence[Index], mask: Array, along: int = -1) -> None:
    """Lanes that take part get consecutive elements from ``starts`` on; the others are undefined."""
    places = consecutive(op, ref, starts, mask, along % mask.ndim)
    executor.result(op, gather(executor, op, ref, places, mask))


def store_compressed(
    executor: Executor, op: Op, ref: Ref, starts: Sequence[Index], value: Array, mask: Array, *, along: int = -1
) -> None:
    """Lanes that take part are stored, or added, to consecutive elements from ``starts`` on."""
    places = consecutive(op, ref, starts, mask, along % mask.ndim)
    scatter(executor, op, ref, places, value, mask, adds=bool(op.attributes.get("add", False)))
