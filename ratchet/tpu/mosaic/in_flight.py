"""The copies under way: which memory each reads and writes until it is waited for. Pure, on one int32 table.

A column is a copy: its semaphore and, for its source and its target, the buffer and the box of elements. It is free
again when its semaphore is back at zero: before that nobody can say which of the copies that share it are done. Beside
each other are the same words of all copies, which one instruction compares. ``journal`` writes and reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jax import lax

from ratchet.tpu.mosaic.memory import Array, Box, Buffer, known

SLOTS = 1024
"""How many copies are followed at a time. One takes any column that is free: some are under way to a kernel's end."""
RANK = 8
_SEMAPHORE, _ENDS = 0, 1
END = 1 + 2 * RANK
"""Words of an end of a copy: its buffer, first elements, those behind the last."""
WIDTH = _ENDS + 2 * END
UNDER_WAY = Buffer(name="copies under way", shape=(WIDTH, SLOTS + 1), dtype=np.dtype(np.int32), space="judge")
"""The table. Semaphores and buffers are numbered from 1; 0 is none. A copy in the last column found no other free."""


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


def words_of(semaphore: Array, source: End, target: End) -> list[Array]:
    """The words of a copy. ``semaphore``: the number of what it is waited for by."""
    return [semaphore, *numbers(source), *numbers(target)]


def started(table: Array, new: Array, when: Array) -> Array:
    """The table with one copy more, if ``when`` (bool scalar). ``new``: int32[WIDTH], its ``words_of``."""
    at = lax.argmin(table[_SEMAPHORE], 0, np.int32)  # the first that is free
    old = lax.dynamic_slice(table, (np.int32(0), at), (WIDTH, 1))
    written = lax.select(lax.broadcast_in_dim(when, old.shape, ()), lax.reshape(new, old.shape), old)
    return lax.dynamic_update_slice(table, written, (np.int32(0), at))


def landed(table: Array, semaphore: Array, when: Array) -> Array:
    """The table without the copies that ``semaphore`` was waited for, if ``when``."""
    own = table[_SEMAPHORE, :SLOTS]
    left = lax.select((own == semaphore) & when, lax.full_like(own, 0), own)
    return lax.dynamic_update_slice(table, lax.reshape(left, (1, SLOTS)), (np.int32(0), np.int32(0)))


def touched(table: Array, mine: Array) -> Array:
    """bool[2]: whether a box of a buffer overlaps the source of a copy under way, and the target of one.

    A copy may have no elements: one of a page of which no row is needed. It overlaps nothing, wherever it is.

    Args:
        mine: int32[END], the ``numbers`` of the box.
    """
    shape = (2, RANK, SLOTS)
    ends = lax.reshape(table[_ENDS:, :SLOTS], (2, END, SLOTS))
    own_first, own_behind = (
        lax.broadcast_in_dim(words, shape, (1,)) for words in (mine[1 : 1 + RANK], mine[1 + RANK :])
    )
    overlaps = lax.max(ends[:, 1 : 1 + RANK], own_first) < lax.min(ends[:, 1 + RANK :], own_behind)
    here = (ends[:, 0] == mine[0]) & (table[_SEMAPHORE, :SLOTS] != 0)
    return lax.reduce_or(lax.reduce_and(overlaps, (1,)) & here, (1,))


def lost(table: Array) -> Array:
    """Whether more copies were under way than there are columns."""
    return table[_SEMAPHORE, SLOTS] != 0


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
