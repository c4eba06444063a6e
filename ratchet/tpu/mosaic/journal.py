"""What is to be noted of copies under way and of events, collected and then noted in one loop.

Noted one by one, each would cost XLA a dozen kernels of its own: numbers that it knows, and how the others are
computed, become part of the kernels that use them. As rows of a table they do not, and the loop that goes through the
rows is made of the same kernels wherever it is. XLA compiles equal kernels once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mosaic import events, in_flight
from ratchet.tpu.mosaic.events import LOG, LOGGED
from ratchet.tpu.mosaic.in_flight import UNDER_WAY, End
from ratchet.tpu.mosaic.memory import Array, Memory
from ratchet.tpu.mosaic.words import Number, words


class Note(IntEnum):
    """Kinds of notes."""

    TOUCH = 1
    """Memory is written: a copy under way may read it, or write it."""
    START = 2
    LAND = 3
    """A copy begins; those of a semaphore have ended."""
    EVENT = 4


_ROWS = 16
"""Notes that one loop goes through."""
_NOTHING, _END = 0, -1
"""Kinds of rows: of a note that is not made, and behind the last."""
_WIDTH = 1 + in_flight.WIDTH


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One note, made if ``when`` (None for certain)."""

    kind: Note
    numbers: tuple[Number, ...]
    """At most ``underway.WIDTH``."""
    when: Array | None

    def row(self) -> list[Number]:
        kind: Number = int(self.kind)
        if self.when is not None:
            kind = lax.select(jnp.asarray(self.when), jnp.int32(kind), jnp.int32(_NOTHING))
        return [kind, *self.numbers, *(0,) * (_WIDTH - 1 - len(self.numbers))]


def touch(sites: Sequence[Number], end: End, when: Array | None) -> Entry:
    """A write. ``sites``: what to report where a copy reads what is written, and where one writes it."""
    return Entry(kind=Note.TOUCH, numbers=(*sites, *in_flight.numbers(end)), when=when)


def start(semaphore: Array, source: End, target: End, when: Array | None) -> Entry:
    return Entry(kind=Note.START, numbers=tuple(in_flight.words_of(semaphore, source, target)), when=when)


def land(semaphore: Array, when: Array | None) -> Entry:
    return Entry(kind=Note.LAND, numbers=(semaphore,), when=when)


def event(numbers: Sequence[Number], when: Array | None) -> Entry:
    """See ``events.row``."""
    return Entry(kind=Note.EVENT, numbers=tuple(numbers), when=when)


def write(memory: Memory, entries: Sequence[Entry]) -> Iterator[Array]:
    """Note the entries in memory, in order; of the writes among them, the first sites to report (int32[2], or -1)."""
    for some in (entries[at : at + _ROWS] for at in range(0, len(entries), _ROWS)):
        kinds = {entry.kind for entry in some}
        numbers = [number for entry in some for number in entry.row()]
        numbers += [_END] + [0] * ((_ROWS + 1 - len(some)) * _WIDTH - 1)
        found = _noted(memory, lax.reshape(words(numbers), (_ROWS + 1, _WIDTH)), kinds)
        if Note.TOUCH in kinds:
            yield found


def _noted(memory: Memory, rows: Array, kinds: set[Note]) -> Array:
    """Go through rows of these kinds until the end."""
    buffers = [UNDER_WAY] if kinds & {Note.START, Note.LAND} else []
    buffers += [LOG, LOGGED] if Note.EVENT in kinds else []

    def goes_on(state: tuple[Array, Array, list[Array]]) -> Array:
        return lax.dynamic_slice(rows, (state[0], np.int32(0)), (1, 1))[0, 0] != _END

    def turn(state: tuple[Array, Array, list[Array]]) -> tuple[Array, Array, list[Array]]:
        number, found, arrays = state
        row = lax.reshape(lax.dynamic_slice(rows, (number, np.int32(0)), (1, _WIDTH)), (_WIDTH,))
        now = {**memory, **dict(zip(buffers, arrays, strict=True))}
        return number + 1, _made(now, row[0], row[1:], found, kinds), [now[buffer] for buffer in buffers]

    state = (jnp.int32(0), jnp.full(2, -1, jnp.int32), [memory[buffer] for buffer in buffers])
    _, found, arrays = lax.while_loop(goes_on, turn, state)
    memory.update(zip(buffers, arrays, strict=True))
    return found


def _made(memory: Memory, kind: Array, numbers: Array, found: Array, kinds: set[Note]) -> Array:
    """Make one note, of one of some kinds."""
    if Note.TOUCH in kinds:
        hit = in_flight.touched(memory[UNDER_WAY], numbers[2 : 2 + in_flight.END]) & (kind == Note.TOUCH)
        found = lax.select((found < 0) & hit, numbers[:2], found)
        # It is no other kind where something is hit. XLA copies a table that is not surely read before it is written.
        kind = lax.select(lax.reduce_or(hit, (0,)), np.int32(Note.TOUCH), kind)
    if Note.LAND in kinds:
        memory[UNDER_WAY] = in_flight.landed(memory[UNDER_WAY], numbers[0], kind == Note.LAND)
    if Note.START in kinds:
        memory[UNDER_WAY] = in_flight.started(memory[UNDER_WAY], numbers, kind == Note.START)
    if Note.EVENT in kinds:
        new = numbers[: events.WIDTH]
        memory[LOG], memory[LOGGED] = events.appended(memory[LOG], memory[LOGGED], new, kind == Note.EVENT)
    return found
