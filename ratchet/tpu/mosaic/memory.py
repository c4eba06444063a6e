"""Buffers, and references into them: slices, squeezes, reshapes and bitcasts of memrefs, loaded and stored.

A buffer's contents are one array in ``Executor.memory``; a store replaces that array by an updated one, which XLA
turns into an update in place. A reference never holds data.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from ratchet.tpu.mosaic.arrays import Array, Index, add, bitcast_array, bits, decode, encode, put, take, times
from ratchet.values.status import Refusal, Status


@dataclass(eq=False, kw_only=True)
class Buffer:
    """A piece of memory. Its array may be larger than ``shape``: padded so that ragged last blocks fit."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    space: str
    is_input: bool = False
    """True for the array of an input that no output is aliased to."""


Memory = dict[Buffer, Array]
Box = tuple[Sequence[Index], Sequence[Index]]
"""First elements and sizes, in a buffer's own dimensions."""
RANK = 8


def corners(box: Box) -> list[Index]:
    """Of a box, first elements and those behind the last, in ``RANK`` dimensions each."""
    starts, sizes = (
        [*numbers, *(filler,) * (RANK - len(numbers))] for numbers, filler in zip(box, (0, 1), strict=True)
    )
    return [*starts, *map(add, starts, sizes)]


class Ref:
    """A memref: ``shape`` and ``dtype`` as the kernel sees them, and how to reach the buffer below."""

    shape: tuple[int, ...]
    dtype: np.dtype
    buffer: Buffer
    is_slice = False
    """Whether it is a box of its buffer, seen as it is."""

    def load(self, memory: Memory, starts: Sequence[Index], sizes: Sequence[int]) -> Array:
        raise NotImplementedError

    def store(self, memory: Memory, starts: Sequence[Index], value: Array) -> None:
        raise NotImplementedError

    def map_indices(self, change: Callable[[Index], Index]) -> Ref:
        """The same reference with every index of its slices changed."""
        raise NotImplementedError

    def with_dtype(self, dtype: np.dtype) -> Ref:
        """The same reference into a buffer of another dtype; not through a bitcast."""
        raise NotImplementedError

    def box(self, starts: Sequence[Index], sizes: Sequence[Index]) -> Box:
        """Where elements of this reference are in the buffer below; at least where, behind a reshape or bitcast."""
        raise NotImplementedError

    def whole_box(self) -> Box:
        """Where all of it is in the buffer below."""
        return self.box((0,) * len(self.shape), self.shape)

    @property
    def bytes(self) -> Index:
        """What a transfer of it adds to its semaphore."""
        return math.prod(self.shape) * bits(self.dtype) // 8

    def load_all(self, memory: Memory) -> Array:
        return self.load(memory, (0,) * len(self.shape), self.shape)

    def store_all(self, memory: Memory, value: Array) -> None:
        self.store(memory, (0,) * len(self.shape), value)


class Whole(Ref):
    """All of a buffer."""

    is_slice = True

    def __init__(self, buffer: Buffer) -> None:
        self.buffer, self.shape, self.dtype = buffer, buffer.shape, buffer.dtype

    def load(self, memory: Memory, starts: Sequence[Index], sizes: Sequence[int]) -> Array:
        return decode(take(memory[self.buffer], starts, sizes), self.dtype)

    def store(self, memory: Memory, starts: Sequence[Index], value: Array) -> None:
        memory[self.buffer] = put(memory[self.buffer], starts, encode(value))

    def box(self, starts: Sequence[Index], sizes: Sequence[Index]) -> Box:
        return starts, sizes

    def map_indices(self, change: Callable[[Index], Index]) -> Ref:
        return self

    def with_dtype(self, dtype: np.dtype) -> Ref:
        other = copy.copy(self)
        other.dtype = dtype
        return other


class Slice(Ref):
    """A rectangular part of another reference, not squeezed."""

    def __init__(self, base: Ref, starts: Sequence[Index], shape: Sequence[int]) -> None:
        self.base, self.starts, self.shape = base, tuple(starts), tuple(shape)
        self.buffer, self.dtype, self.is_slice = base.buffer, base.dtype, base.is_slice

    def _at(self, starts: Sequence[Index]) -> list[Index]:
        return [add(a, b) for a, b in zip(self.starts, starts, strict=True)]

    def load(self, memory: Memory, starts: Sequence[Index], sizes: Sequence[int]) -> Array:
        return self.base.load(memory, self._at(starts), sizes)

    def store(self, memory: Memory, starts: Sequence[Index], value: Array) -> None:
        self.base.store(memory, self._at(starts), value)

    def box(self, starts: Sequence[Index], sizes: Sequence[Index]) -> Box:
        return self.base.box(self._at(starts), sizes)

    def map_indices(self, change: Callable[[Index], Index]) -> Ref:
        return Slice(self.base.map_indices(change), [change(i) for i in self.starts], self.shape)

    def with_dtype(self, dtype: np.dtype) -> Ref:
        return Slice(self.base.with_dtype(dtype), self.starts, self.shape)


class Squeeze(Ref):
    """Another reference without some of its dimensions of size one."""

    def __init__(self, base: Ref, kept: Sequence[int]) -> None:
        self.base, self.kept = base, tuple(kept)
        self.shape = tuple(base.shape[i] for i in kept)
        self.buffer, self.dtype, self.is_slice = base.buffer, base.dtype, base.is_slice

    def _expand(self, items: Sequence[Any], filler: Any) -> list[Any]:
        full = [filler] * len(self.base.shape)
        for position, item in zip(self.kept, items, strict=True):
            full[position] = item
        return full

    def load(self, memory: Memory, starts: Sequence[Index], sizes: Sequence[int]) -> Array:
        return self.base.load(memory, self._expand(starts, 0), self._expand(sizes, 1)).reshape(tuple(sizes))

    def store(self, memory: Memory, starts: Sequence[Index], value: Array) -> None:
        self.base.store(memory, self._expand(starts, 0), value.reshape(tuple(self._expand(value.shape, 1))))

    def box(self, starts: Sequence[Index], sizes: Sequence[Index]) -> Box:
        return self.base.box(self._expand(starts, 0), self._expand(sizes, 1))

    def map_indices(self, change: Callable[[Index], Index]) -> Ref:
        return Squeeze(self.base.map_indices(change), self.kept)

    def with_dtype(self, dtype: np.dtype) -> Ref:
        return Squeeze(self.base.with_dtype(dtype), self.kept)


class Recast(Ref):
    """Another reference seen through a reshape or bitcast of all of it."""

    def __init__(
        self,
        base: Ref,
        shape: Sequence[int],
        dtype: np.dtype,
        forward: Callable[[Array], Array],
        backward: Callable[[Array], Array],
    ) -> None:
        self.base, self.shape, self.dtype, self.buffer = base, tuple(shape), dtype, base.buffer
        self._forward, self._backward = forward, backward

    def load(self, memory: Memory, starts: Sequence[Index], sizes: Sequence[int]) -> Array:
        return take(self._forward(self.base.load_all(memory)), starts, sizes)

    def store(self, memory: Memory, starts: Sequence[Index], value: Array) -> None:
        if tuple(value.shape) != self.shape:
            value = put(self._forward(self.base.load_all(memory)), starts, value)
        self.base.store_all(memory, self._backward(value))

    def box(self, starts: Sequence[Index], sizes: Sequence[Index]) -> Box:
        if math.prod(self.shape) == math.prod(self.base.shape):
            return self.base.box(*reshaped_box(starts, sizes, self.shape, self.base.shape))
        same = [mine == below for mine, below in zip(self.shape, self.base.shape, strict=False)]
        if len(self.shape) == len(self.base.shape) and same.count(False) == 1:
            dim = same.index(False)
            start, size = _repacked(starts[dim], sizes[dim], self.shape[dim], self.base.shape[dim])
            return self.base.box((*starts[:dim], start, *starts[dim + 1 :]), (*sizes[:dim], size, *sizes[dim + 1 :]))
        kept = same.index(False) if False in same else len(same)  # leading dimensions are those of the base
        rest = len(self.base.shape) - kept
        return self.base.box(
            (*starts[:kept], *(0,) * rest), (*sizes[:kept], *self.base.shape[len(self.base.shape) - rest :])
        )

    def map_indices(self, change: Callable[[Index], Index]) -> Ref:
        return Recast(self.base.map_indices(change), self.shape, self.dtype, self._forward, self._backward)

    def with_dtype(self, dtype: np.dtype) -> Ref:
        if self.dtype != self.base.dtype:
            raise Refusal(Status.CANNOT_VERIFY, "a DMA into a bitcast reference, with late arrival")
        return Recast(self.base.with_dtype(dtype), self.shape, dtype, self._forward, self._backward)


def _repacked(start: Index, size: Index, mine: int, below: int) -> tuple[Index, Index]:
    """Some of ``mine`` rows, each of which is several of ``below`` or a part of one: which of ``below`` they are."""
    if below > mine:
        return times(start, below // mine), times(size, below // mine)
    each = mine // below
    first = start // each
    return first, add(add(add(start, size), -1) // each, add(times(first, -1), 1))


def reshaped_box(starts: Sequence[Index], sizes: Sequence[Index], shape: Sequence[int], into: Sequence[int]) -> Box:
    """The smallest box of an array of shape ``into`` that surely holds a box of the same array of shape ``shape``.

    It is that box exactly where dimensions are merged and the elements are next to each other, or where the first of
    the dimensions that one is split into is cut at its ends.
    """
    first: list[Index] = []
    many: list[Index] = []
    for old, new in _matched(shape, into):
        if len(old) == len(new) == 1:
            first.append(starts[old[0]])
            many.append(sizes[old[0]])
            continue
        begin: Index = 0
        length: Index = 1  # from the first element to the last, in row-major order
        for dim in old:
            stride = math.prod(shape[other] for other in old if other > dim)
            begin = add(begin, times(starts[dim], stride))
            length = add(length, times(add(sizes[dim], -1), stride))
        if len(new) == 1:
            first.append(begin)
            many.append(length)
        elif new:
            inner = math.prod(into[dim] for dim in new[1:])
            top = begin // inner
            first += [top, *(0 for _ in new[1:])]
            many += [
                add(add(add(begin, length), -1) // inner, add(times(top, -1), 1)),
                *(into[dim] for dim in new[1:]),
            ]
    return tuple(first), tuple(many)


def _matched(shape: Sequence[int], into: Sequence[int]) -> Iterator[tuple[range, range]]:
    """Dimensions of two shapes of as many elements, cut into the shortest runs that hold as many as each other."""
    i = j = 0
    while i < len(shape) or j < len(into):
        old, new, mine, theirs = i, j, 1, 1
        while not (mine == theirs and (i > old or i == len(shape)) and (j > new or j == len(into))):
            if i < len(shape) and (mine <= theirs or j == len(into)):
                mine, i = mine * shape[i], i + 1
            else:
                theirs, j = theirs * into[j], j + 1
        yield range(old, i), range(new, j)


def reshape(base: Ref, shape: Sequence[int]) -> Ref:
    """The same elements in row-major order under another shape."""
    if math.prod(shape) != math.prod(base.shape):
        raise Refusal(Status.CANNOT_VERIFY, f"memref reshape from {base.shape} to {tuple(shape)} changes the size")
    return Recast(base, shape, base.dtype, lambda x: x.reshape(tuple(shape)), lambda x: x.reshape(base.shape))


def bitcast(base: Ref, shape: Sequence[int], dtype: np.dtype) -> Ref:
    """The same bits under another dtype; widths may differ along the second-minor dimension (see ``bitcast_array``)."""
    return Recast(base, shape, dtype, lambda x: bitcast_array(x, dtype), lambda x: bitcast_array(x, base.dtype))


def put_where(memory: Memory, ref: Ref, condition: Array | None, value: Array) -> None:
    """Store all of ``ref`` if ``condition``; None is true."""
    ref.store_all(memory, value if condition is None else jnp.where(condition, value, ref.load_all(memory)))


# --- slices whose size is known only when the kernel runs ---


class DynamicSlice(Ref):
    """``sizes`` elements from ``starts`` on of another reference; either may be traced.

    Mosaic lets it be an end of a DMA and nothing else.
    """

    def __init__(self, base: Ref, starts: Sequence[Index], sizes: Sequence[Index]) -> None:
        self.base, self.starts, self.sizes = base, tuple(starts), tuple(sizes)
        self.buffer, self.dtype = base.buffer, base.dtype

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        raise Refusal(Status.CANNOT_VERIFY, "a slice of dynamic size cannot be executed, except for a DMA")

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
        return self.base.box(self.starts, self.sizes)

    @property
    def bytes(self) -> Index:
        elements = jnp.int32(1)
        for size in self.sizes:
            elements = elements * jnp.asarray(size, jnp.int32)
        return elements * bits(self.dtype) // 8

    def map_indices(self, change: Callable[[Index], Index]) -> Ref:
        raise AssertionError(self.shape)


def dynamic_parts(ref: Ref) -> DynamicSlice:
    """Any reference as a slice of dynamic size: a plain one is all of itself."""
    if isinstance(ref, DynamicSlice):
        return ref
    if isinstance(ref, Slice):
        return DynamicSlice(ref.base, ref.starts, ref.shape)
    return DynamicSlice(ref, (0,) * len(ref.shape), ref.shape)


def sizes_differ(a: DynamicSlice, b: DynamicSlice) -> Array:
    """bool scalar: whether two slices have different sizes."""
    pairs = zip(a.sizes, b.sizes, strict=True)
    return jnp.any(jnp.stack([jnp.asarray(x, jnp.int32) != jnp.asarray(y, jnp.int32) for x, y in pairs]))


def dynamic_copy(memory: Memory, source: DynamicSlice, target: DynamicSlice) -> tuple[Array, Array]:
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
