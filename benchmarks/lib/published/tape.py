"""One modelled run as a tape of its DMAs and waits, so that other constants can be tried without running it again.

What a program does never depends on how long its DMAs take, only when: between two events the same bundles pass. So a
tape holds the events with the cycles between them, and replaying it calls the machine's own memory model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import numpy as np

from ratchet.tpu.chips import Chip
from ratchet.tpu.chips.fitted import Constants
from ratchet.tpu.machine.dma import DmaEngine

START, WAIT, ADD, SET, VALUE, LATER, SHARED, OFFLOAD = range(8)
"""Kinds of events: what a program asks of its memory."""

_RESULT_BYTES = 1 << 20
"""What a SparseCore moves beyond this is a result in another layout; tables that steer a kernel are smaller."""
SPACES = ("hbm", "vmem", "smem", "cmem")


@dataclass(frozen=True, kw_only=True)
class Tape:
    """The events of one run, and what of its timeline depends on no constant."""

    events: np.ndarray
    """One row per event: kind, cycles since the event before ended, two arguments, sync flag, contiguous granules."""
    tail_cycles: int
    """Cycles behind the last event."""
    facts: dict[str, float]
    """``executed_bundles``, ``empty_bundles``, ``mxu_busy_cycles``, ``grid_steps``, ``hbm_bytes`` and the like."""

    def cycles(self, chip: Chip, constants: Constants, *, copies_results: bool = False) -> int:
        """Modelled cycles of the run with other constants."""
        return self.replay(chip, constants, copies_results=copies_results)[0]

    def replay(self, chip: Chip, constants: Constants, *, copies_results: bool = False) -> tuple[int, DmaEngine]:
        """Cycles, and the memory model after the run.

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
        return now + self.tail_cycles, memory

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
