"""The copies under way: which memory each reads and writes until it is waited for. Pure, on one int32 table.

A row is one end of a copy: its semaphore, its buffer, whether it is the target, and the box of elements. It goes when
its semaphore is back at zero: before that nobody can say which of the copies that share it are done.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ratchet.mosaic.memory import Array, Box, Buffer

SLOTS = 1024
"""Ends of copies that are followed at a time; a copy has two."""
RANK = 8
_SEMAPHORE, _BUFFER, _IS_TARGET, _LOW, _HIGH = 0, 1, 2, 3, 3 + RANK
_WIDTH = 3 + 2 * RANK

UNDER_WAY = Buffer(name="copies under way", shape=(SLOTS, _WIDTH), dtype=np.dtype(np.int32), space="judge")
"""The table: a row of zeros is free. Semaphores and buffers are numbered from 1."""


def empty() -> Array:
    """A table without copies."""
    return jnp.zeros(UNDER_WAY.shape, jnp.int32)


def started(
    table: Array,
    semaphore: Array,
    buffer: int,
    box: Box,
    *,
    target: bool,
    when: Array,
) -> tuple[Array, Array]:
    """The table with one end more, if ``when``; and whether there was no room for it.

    Args:
        semaphore: int32 scalar, the number of what the copy is waited for by.
        box: First elements and sizes of what is copied, in the buffer's own dimensions.
        when: bool scalar.
    """
    row = jnp.argmin(table[:, _SEMAPHORE] != 0)
    low, high = corners(box)
    new = jnp.concatenate(
        [jnp.stack([jnp.asarray(semaphore, jnp.int32), jnp.int32(buffer), jnp.int32(target)]), low, high]
    )
    full = table[row, _SEMAPHORE] != 0
    return table.at[row].set(jnp.where(when & ~full, new, table[row])), when & full


def landed(table: Array, semaphore: Array, when: Array) -> Array:
    """The table without the ends that ``semaphore`` was waited for, if ``when``."""
    return jnp.where(((table[:, _SEMAPHORE] == semaphore) & when)[:, None], 0, table)


def touched(table: Array, buffer: int, box: Box) -> tuple[Array, Array]:
    """Whether a box of a buffer overlaps the source of a copy under way, and the target of one."""
    low, high = corners(box)
    overlaps = (table[:, _LOW:_HIGH] < high) & (low < table[:, _HIGH:])
    mine = (table[:, _SEMAPHORE] != 0) & (table[:, _BUFFER] == buffer) & jnp.all(overlaps, 1)
    is_target = table[:, _IS_TARGET] != 0
    return jnp.any(mine & ~is_target), jnp.any(mine & is_target)


def corners(box: Box) -> tuple[Array, Array]:
    """Of a box, first elements, and those behind the last, in ``RANK`` dimensions: int32[RANK] each."""
    starts, sizes = (
        [*numbers, *(filler,) * (RANK - len(numbers))] for numbers, filler in zip(box, (0, 1), strict=True)
    )
    low = jnp.stack([jnp.asarray(start, jnp.int32) for start in starts])
    return low, low + jnp.stack([jnp.asarray(size, jnp.int32) for size in sizes])
