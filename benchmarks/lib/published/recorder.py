"""Runs the schedule machine once and writes down what it asks of its memory: a tape."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import numpy as np

from benchmarks.lib.published.tape import ADD, LATER, OFFLOAD, SET, SHARED, SPACES, START, VALUE, WAIT, Tape
from ratchet.tpu.chips import Chip
from ratchet.tpu.dump.hlo import HloModule
from ratchet.tpu.latency import model
from ratchet.tpu.machine import machine
from ratchet.tpu.machine.dma import DmaEngine
from ratchet.tpu.machine.memory import ScalarInputs
from ratchet.values import Timeline


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

    def offload(self, now: int, core: int, moved: int, flag: int) -> None:
        self._note(OFFLOAD, now, core, moved, flag)
        super().offload(now, core, moved, flag)

    def shared_by(self, cores: int) -> None:
        self._note(SHARED, self.last, cores, 0, 0)
        super().shared_by(cores)

    def value(self, now: int, flag: int) -> int:
        self._note(VALUE, now, 0, 0, flag)
        return super().value(now, flag)


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
    slots = {f"slot_{name}": float(count) for name, count in timeline.slot_issues.items()}
    facts = {
        "executed_bundles": float(timeline.executed_bundles),
        "empty_bundles": float(timeline.empty_bundles),
        "mxu_busy_cycles": float(timeline.mxu_busy_cycles),
        "grid_steps": float(timeline.grid_steps),
        "hbm_bytes": float(timeline.hbm_read_bytes + timeline.hbm_write_bytes),
        "hbm_write_bytes": float(timeline.hbm_write_bytes),
        "cycles": float(timeline.cycles),
        "dma_wait_cycles": float(timeline.dma_wait_cycles),
        **slots,
    }
    events = np.array(memory.events, np.int64).reshape(-1, 6)
    return timeline, Tape(events=events, tail_cycles=timeline.cycles - memory.last, facts=facts)
