"""Types of arrays as a compiled program lays them out, and values laid out in that way. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_ITEM_BITS = {
    "pred": 8, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "bf16": 16, "f16": 16,
    "s32": 32, "u32": 32, "f32": 32, "s64": 64, "u64": 64, "f64": 64, "c64": 64, "c128": 128,
    "f8e4m3fn": 8, "f8e5m2": 8, "f8e4m3b11fnuz": 8, "f8e4m3": 8, "f8e3m4": 8, "f8e8m0fnu": 8, "f4e2m1fn": 4,
}  # fmt: skip

STEERING: dict[str, type[np.generic]] = {
    "pred": np.bool_, "s8": np.int8, "u8": np.uint8, "s16": np.int16, "u16": np.uint16,
    "s32": np.int32, "u32": np.uint32, "f32": np.float32,
}  # fmt: skip
"""Dtypes whose elements the scalar unit can branch on."""


@dataclass(frozen=True, kw_only=True)
class ArrayType:
    """``bf16[16384,128]{1,0:T(8,128)(2,1)S(1)}``, taken apart."""

    dtype: str
    """As HLO writes it: ``bf16``, ``s32``, ``pred``…"""
    shape: tuple[int, ...]
    minor_to_major: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...]
    space: int
    """Memory space: 0 is HBM, 1 is VMEM."""

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def item_bits(self) -> int:
        return _ITEM_BITS.get(self.dtype, 32)

    @property
    def may_steer(self) -> bool:
        """Whether the scalar unit can branch on its elements."""
        return self.dtype in STEERING

    @property
    def is_row_major(self) -> bool:
        """Whether the last dimension is innermost, and so on; dimensions of one element are anywhere. Tiles may be."""
        order = [dimension for dimension in self.minor_to_major if self.shape[dimension] > 1]
        return order == sorted(order, reverse=True)

    @property
    def padded_bytes(self) -> int:
        """Size as laid out, tile padding included."""
        physical = [self.shape[d] for d in reversed(self.minor_to_major)]
        if self.tiles:
            tile = self.tiles[0]
            physical = [1] * (len(tile) - len(physical)) + physical
            for i in range(1, len(tile) + 1):
                physical[-i] = -(-physical[-i] // tile[-i]) * tile[-i]
        return max(4, math.prod(physical) * self.item_bits // 8)


def lay_out(values: np.ndarray, array: ArrayType) -> list[int]:
    """``values`` as the compiler lays them out: signed 32-bit words, tile padding as zeros.

    Raises:
        ValueError: if ``values`` has another shape than ``array``.
    """
    if values.shape != array.shape:
        raise ValueError(f"values have shape {values.shape}, the compiled program wants {array.shape}")
    physical = np.transpose(values, tuple(reversed(array.minor_to_major))) if values.ndim else values.reshape(1)
    for tile in array.tiles:  # each cuts the innermost dimensions that the one before it left: T(512)(128)(4,1)
        while physical.ndim < len(tile):
            physical = np.expand_dims(physical, 0)
        padding = [(0, 0)] * (physical.ndim - len(tile))
        padding += [(0, -n % t) for n, t in zip(physical.shape[-len(tile) :], tile, strict=True)]
        physical = np.pad(physical, padding)
        outer = physical.shape[: physical.ndim - len(tile)]
        split: list[int] = []
        for n, t in zip(physical.shape[-len(tile) :], tile, strict=True):
            split += [n // t, t]
        physical = physical.reshape(*outer, *split)
        base = len(outer)
        order = [*range(base), *range(base, base + 2 * len(tile), 2), *range(base + 1, base + 2 * len(tile), 2)]
        physical = physical.transpose(order)
    raw = np.ascontiguousarray(physical).tobytes()
    raw += b"\0" * (-len(raw) % 32)
    return [int(word) for word in np.frombuffer(raw, dtype="<i4")]


def rearranged(values: np.ndarray, source: ArrayType, target: ArrayType) -> np.ndarray | None:
    """What a ``bitcast`` from ``source`` to ``target`` makes of ``values``: the same bytes, read in another layout.

    None for elements of less than 32 bits in another shape or layout, which share words.
    """
    if (source.shape, source.minor_to_major) == (target.shape, target.minor_to_major):
        return values
    if source.item_bits != 32 or target.item_bits != 32:
        return None
    numbers = [1 + np.arange(math.prod(t.shape), dtype=np.int32).reshape(t.shape) for t in (source, target)]
    places = zip(*(lay_out(number, t) for number, t in zip(numbers, (source, target), strict=True)), strict=False)
    result = np.zeros(math.prod(target.shape), values.dtype)
    for of_source, of_target in places:  # 0 is padding
        if of_source and of_target:
            result[of_target - 1] = values.flat[of_source - 1]
    return result.reshape(target.shape)


def byte_of(index: Sequence[np.ndarray], array: ArrayType) -> np.ndarray:
    """Where elements of an array are in its memory, in bytes from its begin; of several in one byte, that byte.

    Args:
        index: per dimension int64[n], the elements' indices; they may lie behind the array's ends.
    """
    physical = [index[d].astype(np.int64) for d in reversed(array.minor_to_major)] or [np.zeros(1, np.int64)]
    sizes = [array.shape[d] for d in reversed(array.minor_to_major)] or [1]
    for tile in array.tiles:
        missing = max(0, len(tile) - len(sizes))
        physical = [np.zeros_like(physical[0])] * missing + physical
        sizes = [1] * missing + sizes
        outer = len(sizes) - len(tile)
        cut = list(zip(physical[outer:], sizes[outer:], tile, strict=True))
        physical = physical[:outer] + [at // t for at, _, t in cut] + [at % t for at, _, t in cut]
        sizes = sizes[:outer] + [-(-n // t) for _, n, t in cut] + list(tile)
    number = np.zeros_like(physical[0])
    for at, n in zip(physical, sizes, strict=True):
        number = number * n + at
    return number * array.item_bits // 8
