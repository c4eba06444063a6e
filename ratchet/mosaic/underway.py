"""The copies under way: which memory each reads and writes until it is waited for. Pure, on one int32 table.

A row is a copy: its semaphore and, for its source and its target, the buffer and the box of elements. It is free again
when its semaphore is back at zero: before that nobody can say which of the copies that share it are done. ``journal``
writes and reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.mosaic.memory import Array, Box, Buffer, known

SLOTS = 1024
"""Rows: how many copies are followed at a time. A copy takes any that is free: some are under way to a kernel's end."""
RANK = 8
_SEMAPHORE, _ENDS = 0, 1
END = 1 + 2 * RANK
"""Words of an end of a copy: its buffer, first elements, those behind the last."""
WIDTH = _ENDS + 2 * END
_LOST = 0
"""In the last row: whether a row was needed and none was free."""

UNDER_WAY = Buffer(name="copies under way", shape=(SLOTS + 1, WIDTH), dtype=np.dtype(np.int32), space="judge")
"""The table. Semaphores and buffers are numbered from 1; 0 is none."""


@dataclass(frozen=True, kw_only=True)
class End:
    """What a copy reads, or what it writes."""

    buffer: int
    """Its number; 0 for what need not be followed."""
    box: Box


NOWHERE = End(buffer=0, box=((), ()))


def empty(zero: Array) -> Array:
    """A table without copies. ``zero`` is an int32 scalar that XLA does not know: it would fold what follows."""
    return lax.broadcast_in_dim(zero, UNDER_WAY.shape, ())


def row(semaphore: Array, source: End, target: End) -> list[Array]:
    """The numbers of a copy. ``semaphore``: the number of what it is waited for by."""
    return [semaphore, *numbers(source), *numbers(target)]


def started(table: Array, new: Array, when: Array) -> Array:
    """The table with one copy more, if ``when`` (bool scalar). ``new``: int32[WIDTH], its ``row``."""
    at = lax.argmin(table[:SLOTS, _SEMAPHORE], 0, np.int32)
    old = lax.dynamic_slice(table, (at, np.int32(0)), (1, WIDTH))
    is_lost = lax.convert_element_type((old[0, _SEMAPHORE] != 0) & when, np.int32)
    written = lax.select(lax.broadcast_in_dim(when, old.shape, ()), lax.reshape(new, old.shape), old)
    table = lax.dynamic_update_slice(table, written, (at, np.int32(0)))
    kept = table[SLOTS, _LOST] | is_lost
    return lax.dynamic_update_slice(table, lax.reshape(kept, (1, 1)), (np.int32(SLOTS), np.int32(_LOST)))


def landed(table: Array, semaphore: Array, when: Array) -> Array:
    """The table without the copies that ``semaphore`` was waited for, if ``when``."""
    column = table[:SLOTS, _SEMAPHORE]
    left = lax.select((column == semaphore) & when, lax.full_like(column, 0), column)
    return lax.dynamic_update_slice(table, lax.reshape(left, (SLOTS, 1)), (np.int32(0), np.int32(0)))


def touched(table: Array, mine: Array) -> Array:
    """bool[2]: whether a box of a buffer overlaps the source of a copy under way, and the target of one.

    A copy may have no elements: one of a page of which no row is needed. It overlaps nothing, wherever it is.

    Args:
        mine: int32[END], the ``numbers`` of the box.
    """
    ends = lax.reshape(table[:SLOTS, _ENDS:], (SLOTS, 2, END))
    first = lax.max(ends[:, :, 1 : 1 + RANK], jnp.broadcast_to(mine[1 : 1 + RANK], (SLOTS, 2, RANK)))
    behind = lax.min(ends[:, :, 1 + RANK :], jnp.broadcast_to(mine[1 + RANK :], (SLOTS, 2, RANK)))
    overlaps = first < behind
    here = (ends[:, :, 0] == mine[0]) & (table[:SLOTS, _SEMAPHORE, None] != 0)
    return lax.reduce_or(lax.reduce_and(overlaps, (2,)) & here, (0,))


def lost(table: Array) -> Array:
    """Whether more copies were under way than there are rows."""
    return table[SLOTS, _LOST] != 0


def corners(box: Box) -> list[Array]:
    """Of a box, first elements and those behind the last, in ``RANK`` dimensions each."""
    starts, sizes = (
        [*numbers, *(filler,) * (RANK - len(numbers))] for numbers, filler in zip(box, (0, 1), strict=True)
    )
    return [*starts, *(_plus(start, size) for start, size in zip(starts, sizes, strict=True))]


def numbers(end: End) -> list[Array]:
    """The words of an end of a copy."""
    return [end.buffer, *corners(end.box)]


def _plus(start: Array, size: Array) -> Array:
    return int(start) + int(size) if known(start) and known(size) else lax.convert_element_type(start, np.int32) + size
