"""What one chip does that others may see or disturb, event by event: a log that is kept while a kernel is executed.

With ``Options.on_wait``, in kernels that send to other chips; ``chip_races`` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mosaic.arrays import Array
from ratchet.tpu.mosaic.memory import RANK, Box, Buffer, corners

ROWS = 1 << 15
"""Events kept of one chip. Of a kernel with more, nothing is said: it is refused."""


class Did(IntEnum):
    """Kinds of events."""

    ENTER = 1
    """The kernel begins, behind the compiler's barrier of all chips; not where that is skipped."""
    SIGNAL = 2
    """``semaphore`` of chip ``device`` gets ``amount``."""
    WAIT = 3
    """Until the chip's own ``semaphore`` has ``amount``, which is taken off it."""
    SEND = 4
    """A copy into ``box`` of ``buffer`` on chip ``device`` begins; there, ``semaphore`` gets ``amount`` on arrival."""
    READ = 5
    WRITE = 6
    """The chip's own ``buffer`` is read or written, at once."""
    COPY_READ = 7
    COPY_WRITE = 8
    """The chip's own ``buffer`` is read or written by a copy until ``semaphore`` gets ``amount``; it does by this."""


_FIELDS = 7
WIDTH = _FIELDS + 2 * RANK
LOG = Buffer(name="events", shape=(ROWS, WIDTH), dtype=np.dtype(np.int32), space="judge")
LOGGED = Buffer(name="number of events", shape=(), dtype=np.dtype(np.int32), space="judge")

WORDS = 1 + ROWS * WIDTH
"""Of one chip's log in a report: the number of events, then the events."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event of a chip. What a kind has no use for is 0."""

    did: Did
    operation: int = 0
    """Number of the operation among those of the kernel's module."""
    step: int = 0
    semaphore: int = 0
    amount: int = 0
    device: int = 0
    buffer: int = 0
    low: tuple[int, ...] = (0,) * RANK
    high: tuple[int, ...] = (1,) * RANK
    """First elements, and those behind the last."""


def row(  # noqa: PLR0913 - the fields of an event
    did: Did, operation: int, step: Array, *, semaphore: Array = 0, amount: Array = 0, device: Array = 0,
    buffer: int = 0, box: Box = ((), ()),
) -> list[Array]:  # fmt: skip
    """The ``WIDTH`` numbers of an event in the log; as :class:`Event`, with a box in the buffer's own dimensions."""
    return [int(did), operation, step, semaphore, amount, device, buffer, *corners(box)]


def appended(log: Array, count: Array, new: Array, when: Array) -> tuple[Array, Array]:
    """Log and number of events with one more, if ``when``. What has no room is counted and dropped."""
    at = lax.min(count, np.int32(ROWS - 1))
    fits = when & (count < ROWS)
    row = (at, np.int32(0))  # a slice and no scatter, of which XLA's CPU backend makes a loop
    old = lax.dynamic_slice(log, row, (1, WIDTH), allow_negative_indices=False)
    kept = lax.select(lax.broadcast_in_dim(fits, old.shape, ()), lax.reshape(new, old.shape), old)
    log = lax.dynamic_update_slice(log, kept, row, allow_negative_indices=False)
    return log, count + lax.convert_element_type(when, np.int32)


def merged(before: Array, now: Array, chips: int) -> Array:
    """The logs of all chips, of two executions of a kernel one after the other. Before the first, ``before`` is -1."""
    before, now = before.reshape(chips, WORDS), now.reshape(chips, WORDS)
    had = jnp.maximum(before[:, 0], 0)
    first, second = (words[:, 1:].reshape(chips, ROWS, WIDTH) for words in (before, now))
    position = jnp.arange(ROWS)[None, :] - had[:, None]
    moved = jnp.take_along_axis(second, jnp.clip(position, 0, ROWS - 1)[..., None], 1)
    rows = jnp.where((position < 0)[..., None], first, moved)
    return jnp.concatenate([(had + now[:, 0])[:, None], rows.reshape(chips, -1)], 1).reshape(-1)


def read(words: np.ndarray, chips: int) -> list[list[Event]] | None:
    """The events of every chip; None where one had no room for all."""
    logs = words.reshape(chips, WORDS)
    if any(log[0] > ROWS for log in logs):
        return None
    return [[_event(one) for one in log[1:].reshape(ROWS, WIDTH)[: max(int(log[0]), 0)].tolist()] for log in logs]


def _event(one: list[int]) -> Event:
    did, operation, step, semaphore, amount, device, buffer = one[:_FIELDS]
    low, high = one[_FIELDS : _FIELDS + RANK], one[_FIELDS + RANK :]
    return Event(
        did=Did(did), operation=operation, step=step, semaphore=semaphore, amount=amount, device=device, buffer=buffer,
        low=tuple(low), high=tuple(high),
    )  # fmt: skip
