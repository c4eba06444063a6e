"""The copies in flight: which memory each reads and writes until it is waited for. One int32 table.

A column is a copy: its semaphore and, for its source and its target, the buffer and the box of elements. It is free
again when its semaphore is back at zero: before that nobody can say which of the copies that share it are done. Beside
each other are the same words of all copies, which one instruction compares.

What happens to the table and to the log of events is collected as notes, and written where the next control flow
begins. Each note makes XLA compile a dozen kernels, into which it puts the numbers that it knows. As rows of a vector
they are no part of a kernel: a loop over the rows is made of the same kernels everywhere, and those compile once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mosaic import events
from ratchet.tpu.mosaic.arrays import Array, Number, vector_of
from ratchet.tpu.mosaic.events import LOG, LOGGED
from ratchet.tpu.mosaic.memory import RANK, Box, Buffer, Memory, corners

SLOTS = 1024
"""How many copies are followed at a time. One takes any column that is free: some are in flight to a kernel's end."""
_SEMAPHORE, _ENDS = 0, 1
_END = 1 + 2 * RANK
"""Words of an end of a copy: its buffer, first elements, those behind the last."""
WIDTH = _ENDS + 2 * _END
IN_FLIGHT = Buffer(name="copies in flight", shape=(WIDTH, SLOTS + 1), dtype=np.dtype(np.int32), space="judge")
"""The table. Semaphores and buffers are numbered from 1; 0 is none. A copy in the last column found no other free."""


@dataclass(frozen=True, kw_only=True)
class End:
    """What a copy reads, or what it writes."""

    buffer: int
    """Its number; 0 for what need not be followed."""
    box: Box

    @property
    def numbers(self) -> list[Number]:
        return [self.buffer, *corners(self.box)]


NOWHERE = End(buffer=0, box=((), ()))


def empty() -> Array:
    """A table without copies."""
    return jnp.zeros(IN_FLIGHT.shape, jnp.int32)


def lost(table: Array) -> Array:
    """Whether more copies were in flight than there are columns."""
    return table[_SEMAPHORE, SLOTS] != 0


def _started(table: Array, new: Array, when: Array) -> Array:
    """The table with one copy more, if ``when`` (bool scalar). ``new``: int32[WIDTH], its words."""
    at = lax.argmin(table[_SEMAPHORE], 0, np.int32)  # the first that is free
    old = lax.dynamic_slice(table, (np.int32(0), at), (WIDTH, 1))
    written = lax.select(lax.broadcast_in_dim(when, old.shape, ()), lax.reshape(new, old.shape), old)
    return lax.dynamic_update_slice(table, written, (np.int32(0), at))


def _landed(table: Array, semaphore: Array, when: Array) -> Array:
    """The table without the copies that ``semaphore`` was waited for, if ``when``."""
    own = table[_SEMAPHORE, :SLOTS]
    left = lax.select((own == semaphore) & when, lax.full_like(own, 0), own)
    return lax.dynamic_update_slice(table, lax.reshape(left, (1, SLOTS)), (np.int32(0), np.int32(0)))


def _touched(table: Array, mine: Array) -> Array:
    """bool[2]: whether a box of a buffer overlaps the source of a copy in flight, and the target of one.

    A copy may have no elements: one of a page of which no row is needed. It overlaps nothing, wherever it is.

    Args:
        mine: int32[_END], the numbers of the box.
    """
    shape = (2, RANK, SLOTS)
    ends = lax.reshape(table[_ENDS:, :SLOTS], (2, _END, SLOTS))
    own_first, own_behind = (
        lax.broadcast_in_dim(words, shape, (1,)) for words in (mine[1 : 1 + RANK], mine[1 + RANK :])
    )
    overlaps = lax.max(ends[:, 1 : 1 + RANK], own_first) < lax.min(ends[:, 1 + RANK :], own_behind)
    here = (ends[:, 0] == mine[0]) & (table[_SEMAPHORE, :SLOTS] != 0)
    return lax.reduce_or(lax.reduce_and(overlaps, (1,)) & here, (1,))


# --- notes ----------------------------------------------------------------------------------------


class Kind(IntEnum):
    """What a note is of."""

    NOTHING = 0
    """Its branch is not taken."""
    WRITE = 1
    """Memory is written: a copy in flight may read it, or write it."""
    START = 2
    LAND = 3
    """A copy begins; those of a semaphore have ended."""
    EVENT = 4


_ROWS = 16
"""Notes that one loop goes through."""
_LAST = -1
"""The kind of the row behind the last."""
_ROW = 1 + WIDTH


@dataclass(frozen=True, kw_only=True)
class Note:
    """One note, made if ``when`` (None for certain)."""

    kind: Kind
    numbers: tuple[Number, ...]
    """At most ``WIDTH``."""
    when: Array | None

    def row(self) -> list[Number]:
        kind: Number = int(self.kind)
        if self.when is not None:
            kind = lax.select(jnp.asarray(self.when), jnp.int32(kind), jnp.int32(Kind.NOTHING))
        return [kind, *self.numbers, *(0,) * (WIDTH - len(self.numbers))]


def write(sites: Sequence[Number], end: End, when: Array | None) -> Note:
    """A write. ``sites``: what to report where a copy reads what is written, and where one writes it."""
    return Note(kind=Kind.WRITE, numbers=(*sites, *end.numbers), when=when)


def start(semaphore: Array, source: End, target: End, when: Array | None) -> Note:
    """``semaphore``: the number of what the copy is waited for by."""
    return Note(kind=Kind.START, numbers=(semaphore, *source.numbers, *target.numbers), when=when)


def land(semaphore: Array, when: Array | None) -> Note:
    return Note(kind=Kind.LAND, numbers=(semaphore,), when=when)


def event(numbers: Sequence[Number], when: Array | None) -> Note:
    """See ``events.row``."""
    return Note(kind=Kind.EVENT, numbers=tuple(numbers), when=when)


def apply(memory: Memory, notes: Sequence[Note], *, together: bool = True) -> Iterator[Array]:
    """Apply the notes to memory, in order; of the writes among them, the first sites to report (int32[2], or -1).

    ``together``: in a loop, which compiles faster.
    """
    if not together:
        for note in notes:
            row = vector_of(note.row())
            found = _applied(memory, row[0], row[1:], jnp.full(2, -1, jnp.int32), {note.kind})
            if note.kind is Kind.WRITE:
                yield found
        return
    for some in (notes[at : at + _ROWS] for at in range(0, len(notes), _ROWS)):
        kinds = {note.kind for note in some}
        numbers = [number for note in some for number in note.row()]
        numbers += [_LAST] + [0] * ((_ROWS + 1 - len(some)) * _ROW - 1)
        found = _applied_in_loop(memory, lax.reshape(vector_of(numbers), (_ROWS + 1, _ROW)), kinds)
        if Kind.WRITE in kinds:
            yield found


def _applied_in_loop(memory: Memory, rows: Array, kinds: set[Kind]) -> Array:
    """Go through rows of these kinds until the last."""
    buffers = [IN_FLIGHT] if kinds & {Kind.START, Kind.LAND} else []
    buffers += [LOG, LOGGED] if Kind.EVENT in kinds else []

    def goes_on(state: tuple[Array, Array, list[Array]]) -> Array:
        return lax.dynamic_slice(rows, (state[0], np.int32(0)), (1, 1))[0, 0] != _LAST

    def step(state: tuple[Array, Array, list[Array]]) -> tuple[Array, Array, list[Array]]:
        number, found, arrays = state
        row = lax.reshape(lax.dynamic_slice(rows, (number, np.int32(0)), (1, _ROW)), (_ROW,))
        now = {**memory, **dict(zip(buffers, arrays, strict=True))}
        return number + 1, _applied(now, row[0], row[1:], found, kinds), [now[buffer] for buffer in buffers]

    state = (jnp.int32(0), jnp.full(2, -1, jnp.int32), [memory[buffer] for buffer in buffers])
    _, found, arrays = lax.while_loop(goes_on, step, state)
    memory.update(zip(buffers, arrays, strict=True))
    return found


def _applied(memory: Memory, kind: Array, numbers: Array, found: Array, kinds: set[Kind]) -> Array:
    """Apply one note, of one of some kinds."""
    if Kind.WRITE in kinds:
        hit = _touched(memory[IN_FLIGHT], numbers[2 : 2 + _END]) & (kind == Kind.WRITE)
        found = lax.select((found < 0) & hit, numbers[:2], found)
        # It is no other kind where something is hit. XLA copies a table that is not surely read before it is written.
        kind = lax.select(lax.reduce_or(hit, (0,)), np.int32(Kind.WRITE), kind)
    if Kind.LAND in kinds:
        memory[IN_FLIGHT] = _landed(memory[IN_FLIGHT], numbers[0], kind == Kind.LAND)
    if Kind.START in kinds:
        memory[IN_FLIGHT] = _started(memory[IN_FLIGHT], numbers, kind == Kind.START)
    if Kind.EVENT in kinds:
        new = numbers[: events.WIDTH]
        memory[LOG], memory[LOGGED] = events.appended(memory[LOG], memory[LOGGED], new, kind == Kind.EVENT)
    return found
