"""One modelled run as a tape of its DMAs and waits, so that other constants can be tried without running it again.

What a program does never depends on how long its DMAs take, only when: between two events the same bundles pass. So a
tape holds the events with the cycles between them, and replaying it calls the machine's own memory model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import numpy as np

from ratchet.tpu.chips import Chip
from ratchet.tpu.chips.fitted import Constants
from ratchet.tpu.dump.hlo import HloModule
from ratchet.tpu.latency import model
from ratchet.tpu.machine import machine
from ratchet.tpu.machine.dma import DmaEngine
from ratchet.tpu.machine.memory import ScalarInputs
from ratchet.values import Timeline

START, WAIT, ADD, SET, VALUE, LATER, SHARED, OFFLOAD = range(8)
"""Kinds of events: what a program asks of its memory."""

_RESULT_BYTES = 1 << 20
"""What a SparseCore moves beyond this is a result in another layout; tables that steer a kernel are smaller."""
SPACES = ("hbm", "vmem", "smem", "cmem")
FACTS = ("executed_bundles", "mxu_busy_cycles", "cycles")
"""What of a timeline is stored with the events."""


@dataclass(frozen=True, kw_only=True)
class Tape:
    """The events of one run, and what of its timeline depends on no constant."""

    events: np.ndarray
    """One row per event: kind, cycles since the event before ended, two arguments, sync flag, contiguous granules."""
    tail_cycles: int
    """Cycles behind the last event."""
    facts: dict[str, float]
    """Those of :data:`FACTS`, and ``hbm_bytes``."""

    def cycles(self, chip: Chip, constants: Constants, *, copies_results: bool = False) -> int:
        """Modelled cycles of the run with other constants.

        A SparseCore's copy of a result takes no time: published device times are those of the TensorCore's operations.
        With ``copies_results`` the TensorCore makes that copy itself, as fast as HBM can: so XLA compiled it before.
        """
        per_byte = chip.clock_hz / (constants.hbm_efficiency * chip.hbm_bytes_per_s)
        memory = DmaEngine(chip, constants, _deadlock)
        start, wait, spaces = memory.start, memory.wait, len(SPACES)
        now = 0
        for kind, gap, a, b, flag, piece in self.events.tolist():
            now += gap
            if kind == START:
                start(now, SPACES[a // spaces], SPACES[a % spaces], b, flag, piece)
            elif kind == WAIT:
                now = wait(now, flag, a, b)
            elif kind == ADD:
                memory.add(flag, a)
            elif kind == SET:
                memory.set(now, flag, a)
            elif kind == LATER:
                memory.later(now, a, flag, b)
            elif kind == OFFLOAD:
                if b < _RESULT_BYTES:
                    memory.offload(now, a, b, flag)
                else:
                    now += ceil(b * per_byte) if copies_results and a == 0 else 0
                    memory.arrive(now, flag, 1, remote=False)
            elif kind == SHARED:
                memory.shared_by(a)
            else:
                memory.value(now, flag)
        return now + self.tail_cycles

    def head(self, count: int) -> Tape:
        """The first ``count`` events."""
        return self if len(self.events) <= count else replace(self, events=self.events[:count], tail_cycles=0)

    def save(self, file: Path) -> None:
        np.savez_compressed(
            file, events=self.events, tail=np.int64(self.tail_cycles), facts=np.str_(json.dumps(self.facts))
        )

    @staticmethod
    def load(file: Path) -> Tape:
        with np.load(file) as stored:
            return Tape(
                events=stored["events"], tail_cycles=int(stored["tail"]), facts=json.loads(str(stored["facts"]))
            )


def _deadlock(flag: int, value: int, least: int, address: int) -> Exception:
    return RuntimeError(f"the tape deadlocks on flag {flag} at {value} of {least}, bundle {address:#x}")


def record(
    dump_dir: Path, *, hlo: HloModule, chip: Chip, compiler: str, scalar_inputs: ScalarInputs
) -> tuple[Timeline, Tape]:
    """Runs the schedule machine once. Raises Refusal as :func:`ratchet.tpu.latency.model` does."""
    _Recorder.made.clear()
    with mock.patch.object(machine, "DmaEngine", _Recorder):
        timeline = model(dump_dir, hlo=hlo, chip=chip, compiler=compiler, scalar_inputs=[scalar_inputs])
    # A program that is bounded is run twice, and the slower run is reported; the other core of a chip runs first.
    waited, end = timeline.dma_wait_cycles, timeline.cycles
    memory = next(m for m in reversed(_Recorder.made) if m.wait_cycles == waited and m.last <= end)
    facts = {name: float(getattr(timeline, name)) for name in FACTS}
    facts["hbm_bytes"] = float(timeline.hbm_read_bytes + timeline.hbm_write_bytes)
    events = np.array(memory.events, np.int64).reshape(-1, 6)
    return timeline, Tape(events=events, tail_cycles=timeline.cycles - memory.last, facts=facts)


class _Recorder(DmaEngine):
    """A memory that writes down what it is asked for. ``last`` is the cycle at which the event before ended."""

    made: ClassVar[list[_Recorder]] = []

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.events: list[tuple[int, int, int, int, int, int]] = []
        self.last = 0
        _Recorder.made.append(self)

    def _note(self, kind: int, now: int, a: int, b: int, flag: int, c: int = 0) -> None:
        self.events.append((kind, now - self.last, a, b, flag, c))
        self.last = now

    def start(self, now: int, source: str, target: str, granules: int, flag: int, piece: int = 0) -> float:
        self._note(START, now, SPACES.index(source) * len(SPACES) + SPACES.index(target), granules, flag, piece)
        return super().start(now, source, target, granules, flag, piece)

    def wait(self, now: int, flag: int, least: int, address: int) -> int:
        self._note(WAIT, now, least, address, flag)
        self.last = super().wait(now, flag, least, address)
        return self.last

    def add(self, flag: int, amount: int) -> None:
        self._note(ADD, self.last, amount, 0, flag)
        super().add(flag, amount)

    def set(self, now: int, flag: int, value: int) -> None:
        self._note(SET, now, value, 0, flag)
        super().set(now, flag, value)

    def later(self, now: int, cycles: int, flag: int, amount: int) -> None:
        self._note(LATER, now, cycles, amount, flag)
        super().later(now, cycles, flag, amount)

    def offload(self, now: int, core: int, moved: int, flag: int, *, exchanged: bool = False) -> None:
        self._note(OFFLOAD, now, core, moved, flag)
        super().offload(now, core, moved, flag, exchanged=exchanged)

    def shared_by(self, cores: int) -> None:
        self._note(SHARED, self.last, cores, 0, 0)
        super().shared_by(cores)

    def value(self, now: int, flag: int) -> int:
        self._note(VALUE, now, 0, 0, flag)
        return super().value(now, flag)
