"""What to do with each tile of a mask or of packed documents: skip it, mask it, or attend it whole."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_flash.kernels.flash_forward import FULL, PARTIAL, SKIP, Pattern

Lazy = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""A mask by rule: int query positions [n, 1] and key positions [1, m] -> bool [n, m], True where a pair attends."""


@dataclass(frozen=True)
class Mask:
    """A mask that can be compared with others, so that its tables are made once."""

    rule: Lazy = field(compare=False)
    identity: Any

    @classmethod
    def of(cls, mask: np.ndarray | Lazy, q_len: int, kv_len: int) -> Mask:
        """From an array bool[q_len, kv_len] or a rule.

        Raises:
            TypeError, ValueError: for anything else.
        """
        if callable(mask):
            return cls(mask, mask)
        if isinstance(mask, jax.core.Tracer):
            raise TypeError(
                "mask is a traced array, wanted a numpy array or a rule: its tiles are listed while tracing"
            )
        array = np.asarray(mask)
        if array.dtype != bool or array.shape != (q_len, kv_len):
            raise ValueError(f"mask is {array.dtype}{list(array.shape)}, wanted bool[{q_len}, {kv_len}]")
        return cls(lambda q, k: array[q, k], hashlib.sha256(array.tobytes()).hexdigest())


@dataclass(frozen=True, kw_only=True, eq=False)
class Tiles:
    """Static tables of one shape, for queries x keys cut into square tiles."""

    states: np.ndarray
    """int32[query tiles * key tiles]."""
    tile_of: np.ndarray
    """int32[query tiles * key tiles]: which tile of ``mask`` holds the pairs; 0 where there is none."""
    mask: np.ndarray | None
    """int8[tiles, tile, tile], queries down; None without a mask."""


def allowed(pattern: Pattern, mask: Mask | None, q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Which pairs attend; ``q`` is [n, 1] and ``k`` is [1, m]."""
    attends = np.broadcast_to(k < pattern.kv_len, (q.shape[0], k.shape[1])).copy()
    if pattern.left is not None:
        attends &= k - q >= -pattern.left
    if pattern.right is not None:
        attends &= k - q <= pattern.right
    if mask is not None:
        attends &= np.asarray(mask.rule(q, k), bool)
    return attends


TILE_COST = 320**2
"""Pairs that take as long as what a tile costs beside its own: at the mask of ``benchmarks.attention`` one of 512 takes
1.16 us and one of 1024 takes 3.81 us, modelled on v5e."""


@functools.lru_cache(maxsize=32)
def suited_tile(pattern: Pattern, mask: Mask, sizes: tuple[int, ...]) -> int:
    """The size at which the tiles that hold a pair cost least, each its pairs and TILE_COST.

    Args:
        pattern, mask: which pairs attend.
        sizes: to choose from, each a multiple of the first.
    """
    finest = sizes[0]
    rows, columns = -(-pattern.q_len // finest), -(-pattern.kv_len // finest)
    attended = np.zeros((rows, columns), bool)
    k = np.arange(pattern.kv_len)[None, :]
    for i in range(rows):
        q = np.arange(i * finest, min((i + 1) * finest, pattern.q_len))[:, None]
        some = np.pad(allowed(pattern, mask, q, k).any(axis=0), (0, columns * finest - pattern.kv_len))
        attended[i] = some.reshape(columns, finest).any(axis=1)

    def cost(size: int) -> int:
        many = size // finest
        even = np.pad(attended, ((0, -rows % many), (0, -columns % many)))
        tiles = even.reshape(even.shape[0] // many, many, -1, many).any(axis=(1, 3))
        return int(tiles.sum()) * (size**2 + TILE_COST)

    return min(sizes, key=cost)


@functools.lru_cache(maxsize=32)
def tiles_of(pattern: Pattern, mask: Mask | None, tile: int) -> Tiles:
    """Lists the tiles. No array of queries x keys is made; equal tiles of the mask are stored once."""
    rows, columns = -(-pattern.q_len // tile), -(-pattern.kv_len // tile)
    states = np.full((rows, columns), SKIP, np.int32)
    tile_of = np.zeros((rows, columns), np.int32)
    stack: list[np.ndarray] = [np.ones((tile, tile), np.int8)]
    known: dict[bytes, int] = {}
    for i in range(rows):
        q = np.arange(i * tile, min((i + 1) * tile, pattern.q_len))[:, None]
        for j in range(columns):
            first, last = j * tile - int(q[-1, 0]), min((j + 1) * tile, pattern.kv_len) - 1 - int(q[0, 0])
            if (pattern.right is not None and first > pattern.right) or (
                pattern.left is not None and last < -pattern.left
            ):
                continue
            k = np.arange(j * tile, min((j + 1) * tile, pattern.kv_len))[None, :]
            attends = allowed(pattern, mask, q, k)
            if not attends.any():
                continue
            whole = attends.all() and k.shape[1] == tile
            states[i, j] = FULL if whole else PARTIAL
            if mask is not None and not whole:
                padded = np.zeros((tile, tile), np.int8)
                padded[: attends.shape[0], : attends.shape[1]] = attends
                key = padded.tobytes()
                if key not in known:
                    known[key] = len(stack)
                    stack.append(padded)
                tile_of[i, j] = known[key]
    return Tiles(states=states.ravel(), tile_of=tile_of.ravel(), mask=np.stack(stack) if mask is not None else None)


def with_documents(tiles: Tiles, q_ids: jax.Array, kv_ids: jax.Array, tile: int) -> jax.Array:
    """States of each batch member: tiles whose ids cannot meet are skipped, those with one id are attended whole.

    Args:
        tiles: without documents.
        q_ids, kv_ids: int32[batch, padded length].
        tile: queries and keys per tile.

    Returns:
        int32[batch, query tiles * key tiles].
    """

    def bounds(ids: jax.Array) -> tuple[jax.Array, jax.Array]:
        cut = ids.reshape(ids.shape[0], -1, tile)
        return cut.min(axis=2), cut.max(axis=2)

    (q_low, q_high), (k_low, k_high) = bounds(q_ids), bounds(kv_ids)
    apart = (q_high[:, :, None] < k_low[:, None, :]) | (k_high[:, None, :] < q_low[:, :, None])
    one = (q_low == q_high)[:, :, None] & (k_low == k_high)[:, None, :] & (q_low[:, :, None] == k_low[:, None, :])
    states = jnp.asarray(tiles.states).reshape(1, q_low.shape[1], k_low.shape[1])
    overlapping = jnp.where((states == FULL) & one, FULL, PARTIAL)
    combined = jnp.where(apart | (states == SKIP), SKIP, overlapping)
    return combined.reshape(combined.shape[0], -1).astype(jnp.int32)
