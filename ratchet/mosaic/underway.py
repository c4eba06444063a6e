"""The copies under way: which memory each reads and writes until it is waited for. Pure, on one int32 table.

A row is a copy: its semaphore and, for its source and its target, the buffer and the box of elements. It is free again
when its semaphore is back at zero: before that nobody can say which of the copies that share it are done. Written with
few operations: kernels unroll hundreds of copies, and XLA compiles these beside each.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.mosaic.memory import Array, Box, Buffer, known

SLOTS = 1024
"""Rows: how many copies are followed at a time. A copy takes any that is free: some are under way to a kernel's end."""
RANK = 8
_SEMAPHORE, _ENDS = 0, 1
_END = 1 + 2 * RANK
_WIDTH = _ENDS + 2 * _END
_LOST = 0
"""In the last row: whether a row was needed and none was free."""

UNDER_WAY = Buffer(name="copies under way", shape=(SLOTS + 1, _WIDTH), dtype=np.dtype(np.int32), space="judge")
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


def started(table: Array, semaphore: Array, source: End, target: End, when: Array | None) -> Array:
    """The table with one copy more, if ``when`` (bool scalar; None for certain).

    Args:
        semaphore: int32 scalar, the number of what the copy is waited for by.
    """
    one = 1 if when is None else lax.convert_element_type(when, np.int32)
    at = lax.argmin(table[:SLOTS, _SEMAPHORE], 0, np.int32)
    old = lax.dynamic_slice(table, (at, np.int32(0)), (1, _WIDTH))
    lost = lax.convert_element_type(old[0, _SEMAPHORE] != 0, np.int32) * one
    new = lax.reshape(words([semaphore, *_words(source), *_words(target)]), (1, _WIDTH))
    row = new if when is None else lax.select(lax.broadcast_in_dim(when, new.shape, ()), new, old)
    table = lax.dynamic_update_slice(table, row, (at, np.int32(0)))
    kept = table[SLOTS, _LOST] | lost
    return lax.dynamic_update_slice(table, lax.reshape(kept, (1, 1)), (np.int32(SLOTS), np.int32(_LOST)))


def landed(table: Array, semaphore: Array, when: Array) -> Array:
    """The table without the copies that ``semaphore`` was waited for, if ``when``."""
    column = table[:SLOTS, _SEMAPHORE]
    left = lax.select((column == semaphore) & when, lax.full_like(column, 0), column)
    return lax.dynamic_update_slice(table, lax.reshape(left, (SLOTS, 1)), (np.int32(0), np.int32(0)))


def touched(table: Array, end: End) -> Array:
    """bool[2]: whether a box of a buffer overlaps the source of a copy under way, and the target of one.

    A copy may have no elements: one of a page of which no row is needed. It overlaps nothing, wherever it is.
    """
    ends = lax.reshape(table[:SLOTS, _ENDS:], (SLOTS, 2, _END))
    mine = words(_words(end))
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


def words(numbers: list[Array]) -> Array:
    """int32 vector of numbers, most of which are constants: those beside each other are one piece."""
    pieces: list[Array] = []
    for is_constant, group in itertools.groupby(numbers, known):
        if is_constant:
            pieces.append(np.array([int(number) for number in group], np.int32))
        else:
            pieces += [lax.reshape(lax.convert_element_type(number, np.int32), (1,)) for number in group]
    return lax.concatenate(pieces, 0) if len(pieces) > 1 else jnp.asarray(pieces[0])


def _words(end: End) -> list[Array]:
    return [end.buffer, *corners(end.box)]


def _plus(start: Array, size: Array) -> Array:
    return int(start) + int(size) if known(start) and known(size) else lax.convert_element_type(start, np.int32) + size
