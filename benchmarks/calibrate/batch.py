"""Replays a tape with many sets of constants at once: a fit asks for hundreds, and what a program does depends on none.

The machine's own queue of HBM runs on arrays, one element per set of constants; only its minima, maxima, roots and
logarithms are numpy's here. Sync flags are kept anew below, because of several copies on one flag another may arrive
first with other constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from unittest import mock

import numpy as np

from benchmarks.lib.published.tape import ADD, SET, SPACES, START, VALUE, WAIT, Tape
from ratchet.tpu.chips import Chip
from ratchet.tpu.chips.fitted import Constants
from ratchet.tpu.machine import hbm
from ratchet.tpu.machine.dma import GRANULE_BYTES

_KNOWN = (START, WAIT, ADD, SET, VALUE)
"""Events of a program that uses one TensorCore alone."""

Amount = int | np.ndarray
Times = float | np.ndarray


def cycles(tape: Tape, chip: Chip, constants: Constants, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Modelled cycles of a run, one for each element of ``values``: arrays of equal length by name of a constant."""
    count = len(next(iter(values.values())))
    if not np.isin(tape.events[:, 0], _KNOWN).all():
        each = [{name: float(array[i]) for name, array in values.items()} for i in range(count)]
        return np.array([tape.cycles(chip, replace(constants, **one)) for one in each], float)
    with _on_arrays():
        return np.broadcast_to(_replay(tape, chip, replace(constants, **values)), count)  # type: ignore[arg-type]


def _on_arrays() -> AbstractContextManager[object]:
    return mock.patch.multiple(hbm, create=True, max=np.maximum, min=np.minimum, sqrt=np.sqrt, log2=np.log2)


def _replay(tape: Tape, chip: Chip, constants: Constants) -> Times:
    memory = _Memory(chip, constants)
    flags: dict[int, _Flag] = {}
    now: Times = 0.0
    for kind, gap, a, b, number, piece in tape.events.tolist():
        now = now + gap
        flag = flags.get(number)
        if flag is None:
            flag = flags[number] = _Flag()
        if kind == START:
            source, target = SPACES[a // len(SPACES)], SPACES[a % len(SPACES)]
            flag.pending.append((memory.copied(now, source, target, b, piece), b))
        elif kind == WAIT:
            now = flag.wait(now, a)
        elif kind == ADD:
            flag.value += a
        elif kind == SET:
            flag.overwrite(now, a)
    return now + tape.tail_cycles


class _Memory:
    """When copies are over: as ``DmaEngine.start`` has it."""

    def __init__(self, chip: Chip, constants: Constants) -> None:
        self._hbm = hbm.HbmQueue(chip, constants)
        self._local_cost = GRANULE_BYTES / constants.local_bytes_per_cycle
        self._local_latency = constants.local_latency_cycles
        self._local_free: Times = 0.0

    def copied(self, now: Times, source: str, target: str, granules: int, piece: int) -> Times:
        reads, writes, size = source == "hbm", target == "hbm", granules * GRANULE_BYTES
        if not (reads or writes):
            self._local_free = np.maximum(self._local_free, now) + granules * self._local_cost
            return self._local_free + self._local_latency
        contiguous = (piece or granules) * GRANULE_BYTES
        begin, done = self._hbm.copy(now, size, contiguous, writes=not reads)  # type: ignore[arg-type]
        if reads and writes:
            _, done = self._hbm.copy(begin, size, contiguous, writes=True)
        return done


class _Flag:
    """A sync flag: what it holds by the arrivals that all sets of constants have seen, and those still under way."""

    def __init__(self) -> None:
        self.value: Amount = 0
        self.pending: list[tuple[Times, Amount]] = []

    def wait(self, now: Times, least: int) -> Times:
        """The cycle at which the flag holds ``least``, not before ``now``."""
        if not self.pending:
            return now
        if len(self.pending) == 1 and isinstance(self.value, int) and self.value < least:
            ((arrival, amount),) = self.pending
            self.pending.clear()
            self.value += amount
            return np.maximum(now, np.ceil(arrival))
        whole = np.broadcast_shapes((1,), *(np.shape(one) for pair in self.pending for one in pair), np.shape(now))
        times = np.array([np.broadcast_to(time, whole) for time, _ in self.pending])
        amounts = np.array([np.broadcast_to(amount, whole) for _, amount in self.pending])
        order = np.argsort(times, axis=0, kind="stable")
        times = np.take_along_axis(times, order, 0)
        held = self.value + np.cumsum(np.take_along_axis(amounts, order, 0), axis=0)
        first = np.argmax(held >= least, axis=0)  # every run ends: the recorded one did
        needed = np.take_along_axis(times, first[None], 0)[0]
        until = np.where(np.asarray(self.value) >= least, now, np.maximum(now, np.ceil(needed)))
        self._settle(until)
        return until

    def overwrite(self, now: Times, value: int) -> None:
        """The flag is set at ``now``, whatever had arrived."""
        self.pending = [(time, np.where(time <= now, 0, amount)) for time, amount in self.pending]
        self.value = value
        self._settle(now)

    def _settle(self, now: Times) -> None:
        """Counts what has arrived with every set of constants."""
        later = []
        for time, amount in self.pending:
            if np.all(time <= now):
                self.value = self.value + amount
            else:
                later.append((time, amount))
        self.pending = later


def modelled_ms(
    tapes: Sequence[Tape], chip: Chip, constants: Constants, values: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Modelled milliseconds, per set of constants and tape."""
    return np.stack([cycles(tape, chip, constants, values) for tape in tapes], axis=1) / chip.clock_hz * 1e3
