"""Arrays as the executor keeps them: Mosaic's element types, and slices at constant or traced indices.

Integers are signless in a kernel and signed here; operations say which they mean. Narrow floats are kept as integers of
the same bits: XLA's CPU backend would convert whole arrays to f32 and back for every slice it updates.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.values.status import Refusal, Status

Index = Any
"""A Python int, a numpy integer or a traced int32 scalar."""
Array = Any

_DTYPES: dict[str, object] = {
    "i1": jnp.bool_,
    "i2": jnp.int2,
    "i4": jnp.int4,
    "i8": jnp.int8,
    "i16": jnp.int16,
    "i32": jnp.int32,
    "index": jnp.int32,
    "f32": jnp.float32,
    "bf16": jnp.bfloat16,
    "f16": jnp.float16,
    "f8E5M2": jnp.float8_e5m2,
    "f8E4M3FN": jnp.float8_e4m3fn,
    "f8E4M3B11FNUZ": jnp.float8_e4m3b11fnuz,
    "f4E2M1FN": jnp.float4_e2m1fn,
    # A semaphore is a count: bytes for a DMA's, signals otherwise.
    "semaphore": jnp.int32,
    "dma_semaphore": jnp.int32,
}

ELEMENT_TYPES = tuple(_DTYPES)


def jax_dtype(name: str) -> np.dtype:
    """The JAX dtype of a Mosaic element type.

    Raises:
        Refusal: ``CANNOT_VERIFY`` for one that is not known.
    """
    if name not in _DTYPES:
        raise Refusal(Status.CANNOT_VERIFY, f"element type {name} is not one this judge can execute: {sorted(_DTYPES)}")
    return np.dtype(_DTYPES[name])  # type: ignore[call-overload,no-any-return]


def is_float(dtype: np.dtype) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.floating))


def bits(dtype: np.dtype) -> int:
    """Bits of one element as the TPU stores it."""
    if dtype == np.dtype(jnp.bool_):
        return 1
    info = jnp.finfo(dtype) if is_float(dtype) else jnp.iinfo(dtype)
    return int(info.bits)


def unsigned(dtype: np.dtype) -> np.dtype:
    """The unsigned integer of the same width."""
    return np.dtype({2: jnp.uint2, 4: jnp.uint4, 8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}[bits(dtype)])


# --- indices and slices ---


def known(index: Index) -> bool:
    """Whether an index is a constant."""
    return isinstance(index, (int, np.integer))


def int32(index: Index) -> Any:
    """As an operand of a ``lax`` function."""
    return np.int32(index) if known(index) else lax.convert_element_type(index, np.int32)


def add(a: Index, b: Index) -> Index:
    """Sum of two indices, constant where both are."""
    if known(a) and int(a) == 0:
        return b
    if known(b) and int(b) == 0:
        return a
    return int(a) + int(b) if known(a) and known(b) else lax.add(int32(a), int32(b))


def times(index: Index, factor: int) -> Index:
    return int(index) * factor if known(index) else lax.mul(int32(index), np.int32(factor))


def position(starts: Sequence[Index], shape: Sequence[int]) -> Index:
    """The row-major number of the element of an array that is read at ``starts``: inside, wherever they point."""
    number: Index = 0
    for dim, (start, size) in enumerate(zip(starts, shape, strict=True)):
        last = np.int32(size - 1)
        inside = max(0, min(int(start), int(last))) if known(start) else lax.clamp(np.int32(0), start, last)
        number = add(number, times(inside, math.prod(shape[dim + 1 :])))
    return number


def take(array: Array, starts: Sequence[Index], sizes: Sequence[int]) -> Array:
    """``array[starts : starts + sizes]``; the whole array and constant slices without a dynamic slice.

    Zeros where that is larger than the array: whoever asks for so much has a finding, too.
    """
    sizes, inside = tuple(sizes), tuple(map(min, sizes, array.shape))
    if sizes == tuple(array.shape) and all(known(s) for s in starts):
        return array
    if all(known(s) for s in starts):
        low = tuple(max(0, min(int(s), dim - n)) for s, n, dim in zip(starts, inside, array.shape, strict=True))
        part = lax.slice(array, low, tuple(map(operator.add, low, inside)))
    else:
        part = lax.dynamic_slice(array, tuple(map(int32, starts)), inside, allow_negative_indices=False)
    if inside == sizes:
        return part
    return lax.pad(part, np.zeros((), part.dtype), [(0, n - there, 0) for n, there in zip(sizes, inside, strict=True)])


def put(array: Array, starts: Sequence[Index], value: Array) -> Array:
    """The array with ``value`` written at ``starts``; what of it is larger than the array is left out: see ``take``."""
    if tuple(value.shape) == tuple(array.shape):
        return value
    inside = tuple(map(min, value.shape, array.shape))
    part = value if inside == tuple(value.shape) else lax.slice(value, (0,) * len(inside), inside)
    return lax.dynamic_update_slice(array, part, tuple(map(int32, starts)), allow_negative_indices=False)


# --- bits ---


def kept_as(dtype: np.dtype) -> np.dtype:
    """What memory keeps elements of a dtype as: floats of 8 and 16 bits as integers of the same bits."""
    return unsigned(dtype) if is_float(dtype) and bits(dtype) in (8, 16) else dtype


def encode(array: Array) -> Array:
    """An array as memory keeps it."""
    return decode(array, kept_as(np.dtype(array.dtype)))


def decode(array: Array, dtype: np.dtype) -> Array:
    """The same bits as another dtype: the inverse of ``encode``."""
    return array if array.dtype == dtype else lax.bitcast_convert_type(array, dtype)


def bitcast_array(x: Array, dtype: np.dtype) -> Array:
    """TPU bitcast: packed elements lie along sublanes, so the second-minor dimension grows or shrinks.

    Element ``r * packing + j`` of the narrow array is the ``j``-th least significant part of row ``r`` of the wide
    one, as ``pltpu.bitcast`` documents and its interpret mode computes.
    """
    source, target = bits(x.dtype), bits(dtype)
    if source == target:
        return lax.bitcast_convert_type(x, dtype)
    *lead, rows, lanes = x.shape
    if source > target:
        packing = source // target
        parts = lax.bitcast_convert_type(x, dtype)  # (..., rows, lanes, packing)
        return jnp.swapaxes(parts, -1, -2).reshape(*lead, rows * packing, lanes)
    packing = target // source
    parts = jnp.swapaxes(x.reshape(*lead, rows // packing, packing, lanes), -1, -2)
    return lax.bitcast_convert_type(parts, dtype)


# --- vectors of numbers ---


Number = Any
"""A constant or a traced int32 scalar."""


def vector_of(numbers: Sequence[Number]) -> Array:
    """int32 vector of numbers; constants beside each other are one piece."""
    pieces: list[Array] = []
    for is_constant, group in itertools.groupby(numbers, known):
        if is_constant:
            pieces.append(np.array([int(number) for number in group], np.int32))
        else:
            pieces += [lax.reshape(int32(number), (1,)) for number in group]
    return lax.concatenate(pieces, 0) if len(pieces) > 1 else jnp.asarray(pieces[0])


def one_of(numbers: Sequence[Number], which: Array) -> Number:
    """One of some int32 numbers; without a table where all are the same constant."""
    if not all(map(known, numbers)):
        return jnp.stack([jnp.asarray(number, jnp.int32) for number in numbers])[which]
    return numbers[0] if len(set(numbers)) == 1 else jnp.asarray(np.array(numbers, np.int32))[which]
