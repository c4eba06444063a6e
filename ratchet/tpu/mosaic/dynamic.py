"""Slices whose size is known only when the kernel runs. Mosaic lets them be ends of a local DMA and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np

from ratchet.tpu.mosaic.dtypes import bits
from ratchet.tpu.mosaic.memory import Array, Box, Index, Memory, Ref, Slice, Squeeze
from ratchet.values.status import Refusal, Status


class DynamicSlice(Ref):
    """``sizes`` elements from ``starts`` on of another reference; either may be traced."""

    def __init__(self, base: Ref, starts: Sequence[Index], sizes: Sequence[Index]) -> None:
        self.base, self.starts, self.sizes = base, tuple(starts), tuple(sizes)
        self.buffer, self.dtype = base.buffer, base.dtype

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        raise Refusal(Status.CANNOT_VERIFY, "a slice of dynamic size cannot be executed, except for a local DMA")

    def squeezed(self, kept: Sequence[int]) -> DynamicSlice:
        """The same elements without the dimensions that are not ``kept``, of each of which it has one."""
        starts = [0 if d in kept else start for d, start in enumerate(self.starts)]
        shape = [size if d in kept else 1 for d, size in enumerate(self.base.shape)]
        base = Squeeze(Slice(self.base, starts, shape), kept)
        return DynamicSlice(base, [self.starts[d] for d in kept], [self.sizes[d] for d in kept])

    def load(self, memory: Memory, starts: Sequence[Index], sizes: Sequence[int]) -> Array:
        raise AssertionError(self.shape)

    def box(self, starts: Sequence[Index], sizes: Sequence[Index]) -> Box:
        raise AssertionError(self.shape)

    def whole_box(self) -> Box:
        """Where all of it is in the buffer below."""
        return self.base.box(self.starts, self.sizes)

    def map_indices(self, change: Callable[[Index], Index]) -> Ref:
        raise AssertionError(self.shape)


def parts(ref: Ref) -> DynamicSlice:
    """Any reference as a slice of dynamic size: a plain one is all of itself."""
    if isinstance(ref, DynamicSlice):
        return ref
    if isinstance(ref, Slice):
        return DynamicSlice(ref.base, ref.starts, ref.shape)
    return DynamicSlice(ref, (0,) * len(ref.shape), ref.shape)


def amount(ref: DynamicSlice) -> Array:
    """int32: bytes that a transfer of it adds to its semaphore."""
    elements = jnp.int32(1)
    for size in ref.sizes:
        elements = elements * jnp.asarray(size, jnp.int32)
    return elements * bits(ref.dtype) // 8


def differ(a: DynamicSlice, b: DynamicSlice) -> Array:
    """bool scalar: whether two slices have different sizes."""
    pairs = zip(a.sizes, b.sizes, strict=True)
    return jnp.any(jnp.stack([jnp.asarray(x, jnp.int32) != jnp.asarray(y, jnp.int32) for x, y in pairs]))


def copied(memory: Memory, source: DynamicSlice, target: DynamicSlice) -> tuple[Array, Array]:
    """A copy of one slice into another: what it changes of the target's base (bool, to be broadcast), and to what.

    Every element of the base is looked up, so a copy costs as much as the whole base.
    """
    array, shape = source.base.load_all(memory), target.base.shape
    inside = jnp.ones((), bool)
    for d, (there, here, size) in enumerate(zip(source.starts, target.starts, target.sizes, strict=True)):
        position = jnp.arange(shape[d], dtype=jnp.int32) - jnp.asarray(here, jnp.int32)
        array = jnp.take(array, jnp.clip(position + jnp.asarray(there, jnp.int32), 0, array.shape[d] - 1), axis=d)
        mine = (position >= 0) & (position < jnp.asarray(size, jnp.int32))
        inside = inside & mine.reshape(np.where(np.arange(len(shape)) == d, -1, 1))
    return inside, array
