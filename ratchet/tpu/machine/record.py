"""What is recorded of one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ratchet.tpu.dump.instruction import Source
from ratchet.tpu.machine.dma import DmaEngine, Ends
from ratchet.tpu.machine.grid_steps import GridSteps
from ratchet.tpu.machine.translate import Translated
from ratchet.values import LinkUse
from ratchet.values.omission import Omission, UndecidedBranches


class OpRun(NamedTuple):
    """One execution of an HLO op."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Record:
    """What happened in one run."""

    cycles: int
    units: Mapping[str, tuple[Translated, bool]]
    """Per listing: its translation with block counts, and whether it is a Pallas kernel."""
    op_cycles: Mapping[str, tuple[int, int]]
    """Per HLO op: executions and cycles."""
    op_runs: Ends
    opcodes: Mapping[str, str]
    unit_of_op: Mapping[str, str]
    steps: GridSteps
    """What happened in each grid step, and where was waited."""
    memory: DmaEngine
    flag_name: Callable[[int], str]
    """The allocation that a sync flag belongs to, with its listing and what the compiler made it for; for messages."""
    op_of_flag: Callable[[int], str]
    """The asynchronous HLO op of the entry computation whose end a sync flag signals, or ``""``."""
    not_modelled: tuple[Omission, ...]
    chip_index: int = 0
    """Which chip of the slice ran, by the compiler's logical id."""
    sent_bytes: int = 0
    """That this chip sent to others, counted once however many links they crossed."""
    launch_cycles: int = 0
    """When the chips of a slice had compared what each was asked to run."""

    def executions(self) -> Mapping[tuple[Source, str], int]:
        """How often what the author wrote in kernels was executed, by source annotation and kind.

        Kinds are those of :class:`ratchet.tpu.machine.emitter.Event`: copies started, waits, branches and how many of
        them were taken, loops (ends of an iteration) and how many of them went on.
        """
        executions: Counter[tuple[Source, str]] = Counter()
        for translated, is_kernel in self.units.values():
            for event, times in translated.executions() if is_kernel else ():
                executions[event.source, event.kind] += times
        return executions


@dataclass(frozen=True, kw_only=True)
class Run:
    """What happened in one run of a program, on all its chips."""

    chips: tuple[Record, ...]
    """By the compiler's logical id."""
    links: tuple[LinkUse, ...] = ()
    """What went over each link of the slice."""
    messages: Ends
    """What the chips sent each other, as :class:`ratchet.tpu.machine.links.Message`."""
    undecided: UndecidedBranches | None = None
    """Set if branches on computed values were taken both ways: this is the slower run."""

    @property
    def slowest(self) -> Record:
        """The chip that the latency is that of."""
        return max(self.chips, key=lambda record: record.cycles)
