"""What is recorded of one run: while the machine runs, in memory that does not grow by much.

The pipeline that the compiler puts around a kernel is one loop. Its iterations are grid steps, and one or two more that
only fill or drain it. What a step executed is the difference between the block counters at two heads of the loop;
few differences occur, so each is kept once, as a *path*.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import sub
from typing import NamedTuple

from ratchet.tpu.dump.instruction import Source
from ratchet.tpu.machine.dma import DmaEngine, Ends
from ratchet.tpu.machine.links import Message
from ratchet.tpu.machine.programs import Addresses, Unit
from ratchet.tpu.machine.translate import Translated
from ratchet.values import LinkUse
from ratchet.values.control import ControlFlow
from ratchet.values.copies import IssuedCopies
from ratchet.values.omission import Omission, UndecidedBranches
from ratchet.values.tokens import SOURCE_FILE

KEPT_RUNS = 20_000
"""Executions of HLO ops kept at each end of a run."""
FEW_STEPS = 5
"""With fewer iterations than this there is no steady state to speak of."""


class Waited(NamedTuple):
    """A wait of a listing, in all its executions."""

    address: int
    """Of its bundle."""
    flag: int
    remote: bool
    """What ended it came from another chip, or was on its way to one."""


Waits = Counter[Waited]
"""Cycles waited."""


class OpRun(NamedTuple):
    """One execution of an HLO op."""

    name: str
    start: int
    end: int


class _Moment(NamedTuple):
    now: int
    counts: tuple[int, ...]
    waits: Waits
    hbm_cycles: float


@dataclass
class Part:
    """A region of all runs of a kernel together."""

    steps: int = 0
    cycles: int = 0
    counts: list[int] = field(default_factory=list)
    """Executions per block."""
    waits: Waits = field(default_factory=Counter)
    hbm_cycles: float = 0.0
    """For how long the transfers that were issued here keep HBM busy."""


@dataclass
class Path:
    """Iterations with the same executions per block."""

    counts: tuple[int, ...]
    steps: int = 0
    cycles: int = 0
    wait_cycles: int = 0
    least_cycles: int = 1 << 62
    most_cycles: int = 0


class KernelSteps:
    """All runs of one kernel listing."""

    def __init__(self, translated: Translated, waits: Waits) -> None:
        self._translated = translated
        self._waits = waits
        self._heads: deque[_Moment] = deque(maxlen=2)
        self._first: _Moment | None = None
        self._begin = _Moment(0, (), Counter(), 0.0)
        self._number = 0
        self._path_of: dict[tuple[int, ...], int] = {}
        self.paths: list[Path] = []
        self.starts: list[int] = []
        """Cycle at which each iteration began."""
        self.ends: list[int] = []
        """Cycle at which each iteration ended: where the next began, or the kernel's end."""
        self.path_numbers = array("i")
        """Index into ``paths`` of each iteration."""
        self.step_waits = array("q")
        """Cycles that each iteration waited."""
        self.parts: dict[str, Part] = {}
        """``first``, ``steady``, ``last``, ``whole``."""

    def begin(self, now: int, hbm_cycles: float) -> None:
        """The kernel starts."""
        self._begin = self._moment(now, hbm_cycles, 0)
        self._heads.clear()
        self._first, self._number = None, 0

    def head(self, now: int, hbm_cycles: float) -> None:
        """Another iteration of the pipeline loop begins; its first block has just been counted."""
        moment = self._moment(now, hbm_cycles, 1)
        if self._heads:
            self._step(self._heads[-1], moment)
        self.starts.append(now)
        self._heads.append(moment)
        if self._number == 2:
            self._first = moment
        self._number += 1

    def end(self, now: int, hbm_cycles: float) -> None:
        """The kernel is done."""
        moment = self._moment(now, hbm_cycles, 0)
        if self._heads:
            self._step(self._heads[-1], moment)
        if self._number < FEW_STEPS or self._first is None:
            self._add("whole", self._begin, moment, self._number)
            return
        self._add("first", self._begin, self._first, 2)
        self._add("steady", self._first, self._heads[0], self._number - 4)
        self._add("last", self._heads[0], moment, 2)

    def _moment(self, now: int, hbm_cycles: float, ahead: int) -> _Moment:
        counts = self._translated.counts.copy()
        if self._translated.loop_block is not None:
            counts[self._translated.loop_block] -= ahead
        return _Moment(now, tuple(counts), self._waits.copy(), hbm_cycles)

    def _step(self, start: _Moment, end: _Moment) -> None:
        counts = tuple(map(sub, end.counts, start.counts))
        number = self._path_of.get(counts)
        if number is None:
            number = self._path_of[counts] = len(self.paths)
            self.paths.append(Path(counts))
        path, cycles = self.paths[number], end.now - start.now
        waited = end.waits.total() - start.waits.total()
        path.steps += 1
        path.cycles += cycles
        path.wait_cycles += waited
        path.least_cycles = min(path.least_cycles, cycles)
        path.most_cycles = max(path.most_cycles, cycles)
        self.ends.append(end.now)
        self.path_numbers.append(number)
        self.step_waits.append(waited)

    def _add(self, name: str, start: _Moment, end: _Moment, steps: int) -> None:
        part = self.parts.setdefault(name, Part(counts=[0] * len(end.counts)))
        part.steps += steps
        part.cycles += end.now - start.now
        part.counts = [n + b - a for n, a, b in zip(part.counts, start.counts, end.counts, strict=True)]
        part.waits.update(end.waits)
        part.waits.subtract(start.waits)
        part.hbm_cycles += end.hbm_cycles - start.hbm_cycles


class GridSteps:
    """The recorder of one run of a program."""

    def __init__(self) -> None:
        self.op_cycles: dict[str, list[int]] = {}
        """Per HLO op: executions and cycles."""
        self.op_runs = Ends(KEPT_RUNS)
        self.waits: defaultdict[str, Waits] = defaultdict(Counter)
        """Per listing."""
        self.kernels: dict[str, KernelSteps] = {}
        """Per kernel listing."""

    def ran(self, op: str, start: int, end: int) -> None:
        """An execution of an HLO op is over."""
        total = self.op_cycles.setdefault(op, [0, 0])
        total[0] += 1
        total[1] += end - start
        self.op_runs.add(OpRun(op, start, end))

    def waited(self, listing: str, wait: Waited, cycles: int) -> None:
        """A wait of ``cycles`` in ``listing``."""
        self.waits[listing][wait] += cycles

    def kernel(self, listing: str, translated: Translated) -> KernelSteps:
        """The record of one kernel listing."""
        if listing not in self.kernels:
            self.kernels[listing] = KernelSteps(translated, self.waits[listing])
        return self.kernels[listing]


@dataclass(frozen=True, kw_only=True)
class Record:
    """What happened in one run."""

    cycles: int
    units: Mapping[str, Unit]
    """Per listing, with its counts."""
    opcodes: Mapping[str, str]
    """Of the HLO's instructions, by name."""
    unit_of_op: Mapping[str, str]
    steps: GridSteps
    """What happened in each op and grid step, and where was waited."""
    memory: DmaEngine
    addresses: Addresses
    """Names sync flags."""
    not_modelled: tuple[Omission, ...]
    copies: tuple[IssuedCopies, ...] = ()
    """Of each kernel's first run, on one chip."""
    chip_index: int = 0
    """Which chip of the slice ran, by the compiler's logical id."""
    place: int = 0
    """Of that chip in the mesh."""
    sent_bytes: int = 0
    """That this chip sent to others, counted once however many links they crossed."""
    launch_cycles: int = 0
    """When the chips of a slice had compared what each was asked to run."""
    messages: Sequence[Message] = ()
    """What is kept of what the chips of the slice sent each other."""
    more_messages: int = 0
    """What is not."""
    link_busy_cycles: int = 0
    """For which the busiest link of the slice carried bytes."""
    beside: tuple[Record, ...] = ()
    """Of the other cores of the chip, which have their part of the same kernels."""

    def executions(self) -> Mapping[tuple[Source, str], int]:
        """How often what the author wrote in kernels was executed, by source annotation and kind.

        Kinds are those of :class:`ratchet.tpu.machine.emitter.Event`: copies started, waits, branches and how many of
        them were taken, loops (ends of an iteration) and how many of them went on.
        """
        executions: Counter[tuple[Source, str]] = Counter()
        for unit in self.units.values():
            for event, times in unit.translated.executions() if unit.is_kernel else ():
                executions[event.source, event.kind] += times
        return executions

    def control(self) -> ControlFlow:
        """The branches, loops and DMA starts of the kernels, by the operation that each was compiled from.

        A conditional compiles to a branch forward that passes its body by, a loop to a branch back at the end of each
        iteration; the compiler repeats the operation's place behind both. One that it unrolled, predicated or decided
        has no branch and is left out, as is code without a place: the pipeline around a kernel's body. Cores of one
        chip count together.
        """
        executed: dict[str, Counter[str]] = {kind: Counter() for kind in ("branch", "branch taken", "loop", "copy")}
        of_cores = (pair for one in (self, *self.beside) for pair in one.executions().items())
        for (source, kind), times in of_cores:
            if kind in executed and source.operation is not None:
                executed[kind][f"{SOURCE_FILE}:{source.operation}"] += times
        taken = executed["branch taken"]
        return ControlFlow(
            branches={place: (times - taken[place], taken[place]) for place, times in executed["branch"].items()},
            loops=dict(executed["loop"]),
            copies=dict(executed["copy"]),
            issued=self.copies,
        )


@dataclass(frozen=True, kw_only=True)
class Run:
    """What happened in one run of a program, on all its chips."""

    chips: tuple[Record, ...]
    """By the compiler's logical id."""
    links: tuple[LinkUse, ...] = ()
    """What went over each link of the slice."""
    undecided: UndecidedBranches | None = None
    """Set if branches on computed values were taken both ways: this is the slower run."""

    @property
    def slowest(self) -> Record:
        """The chip that the latency is that of."""
        return max(self.chips, key=lambda record: record.cycles)
