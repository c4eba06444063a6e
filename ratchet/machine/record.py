"""What the machine records of one run, for :func:`ratchet.account.timeline.build`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ratchet.machine.dma import DmaEngine, Ends
from ratchet.machine.grid_steps import GridSteps
from ratchet.machine.translate import Translated
from ratchet.values.omission import Omission


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
