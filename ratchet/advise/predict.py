"""What an edit would save of a modelled run, at best: cycles that it is about, less what it makes worse. Pure.

The cycles are those that ``account/`` blames on source lines, the pipeline, waits and stalls; how much of them goes is
read off the edit (twice the block, half the steps). Nothing is compiled: a prediction says where to look first, and
what came of earlier ones is in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ratchet.advise.advice import Edit, Evidence, Rewrite
from ratchet.values import SourceLine, Timeline
from ratchet.values.blame import LineCost
from ratchet.values.loss import IdleSteps, Loss, LossKind, MatrixBound, Spills, Stalls, Waits
from ratchet.values.place import Code

_SPARED = 0.5
"""Of the vector arithmetic on a line that an edit makes cheaper and does not take away."""
_DOUBTFUL = 0.05
"""Of what a change of a block's size saves, where it should cost more than that."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A modelled run of one kernel file."""

    timeline: Timeline
    file: str
    """What the kernel file is called in it."""

    @cached_property
    def _lines(self) -> dict[int, LineCost]:
        return {
            cost.place.line: cost
            for cost in self.timeline.blame.lines
            if isinstance(cost.place, SourceLine) and cost.place.file == self.file
        }

    @property
    def cycles(self) -> int:
        return self.timeline.cycles

    @cached_property
    def most(self) -> int:
        """What can be saved at all: all but the products on the busiest matrix unit."""
        bound = (loss.ceiling_cycles for loss in self.timeline.blame.losses if isinstance(loss, MatrixBound))
        return max(0, self.cycles - max(bound, default=0))

    def without(self, cycles: int) -> float:
        """The latency in ms, were it so many cycles shorter."""
        return (self.cycles - cycles) / self.timeline.clock_hz * 1e3

    @cached_property
    def pipeline(self) -> int:
        """Scalar code around the kernels' steps."""
        every = (one for one in self.timeline.blame.lines if one.place is Code.PIPELINE)
        return sum(one.cycles - one.wait_cycles for one in every)

    @cached_property
    def waited(self) -> int:
        return sum(one.wait_cycles for one in self.timeline.blame.lines)

    @cached_property
    def ends(self) -> int:
        """The first and last steps of the kernels, in which the pipeline is filled and drained."""
        return sum(one.cycles for one in self.timeline.blame.regions if one.name in ("first", "last"))

    def loss(self, kind: LossKind) -> Loss | None:
        return next((one for one in self.timeline.blame.losses if one.kind is kind), None)

    def units(self, lines: Iterable[int], *names: str) -> int:
        """Cycles that lines issue on units, and wait for them."""
        costs = [self._lines[line] for line in lines if line in self._lines]
        return sum(one.issue_cycles.get(name, 0) + one.stall_cycles.get(name, 0) for one in costs for name in names)

    def of_lines(self, lines: Sequence[int]) -> Evidence:
        """What source lines cost."""
        costs = {line: self._lines[line].cycles for line in lines if line in self._lines}
        return self._evidence(None, sum(costs.values()), max(costs, key=lambda line: costs[line], default=None))

    def of_loss(self, kind: LossKind) -> Evidence | None:
        """A loss, with the source line that most of it is on, if it is on one."""
        match loss := self.loss(kind):
            case Waits() | Stalls() | Spills() | IdleSteps():
                place = loss.place if isinstance(loss, Waits) else None
                if isinstance(loss, Stalls) and loss.units:
                    place = loss.units[0].place
                line = place.line if isinstance(place, SourceLine) and place.file == self.file else None
                return self._evidence(kind, loss.cycles, line)
        return None

    def _evidence(self, loss: LossKind | None, cycles: int, line: int | None) -> Evidence:
        return Evidence(loss=loss, cycles=cycles, share=cycles / max(1, self.cycles), line=line)


def saved(run: Run, rewrite: Rewrite) -> int:
    """Cycles that an edit saves at best; 0 where it should cost more than it saves."""
    return max(0, min(int(_saved(run, rewrite)), run.most))


def evidence(run: Run, rewrite: Rewrite) -> tuple[Evidence, ...]:
    """What speaks for an edit, most of it first."""
    about = [one for kind in _ABOUT.get(rewrite.edit, ()) if (one := run.of_loss(kind)) is not None]
    if rewrite.lines:
        about.append(run.of_lines(rewrite.lines))
    return tuple(sorted((one for one in about if one.cycles), key=lambda one: -one.cycles))


_ABOUT = {
    Edit.LARGER: (LossKind.WAITS, LossKind.STALLS, LossKind.IDLE_STEPS),
    Edit.VMEM: (LossKind.WAITS, LossKind.STALLS, LossKind.IDLE_STEPS),
    Edit.SMALLER: (LossKind.SPILLS,),
    Edit.STRIPS: (LossKind.SPILLS, LossKind.STALLS),
    Edit.RESIDENT: (LossKind.IDLE_STEPS, LossKind.WAITS),
    Edit.SKIP: (LossKind.STALLS,),
}
_WHOLLY = {
    Edit.MASK: ("VALU",),
    Edit.SCALE: ("VALU",),
    Edit.NARROW: ("VALU",),
    Edit.WIDE: ("XLU",),
    Edit.LANES: ("XLU", "VPOP"),
}
"""Units whose work on its lines an edit takes away."""
_PARTLY = {
    Edit.BASE_2: ("VALU", "EUP"),
    Edit.DIVIDE: ("VALU", "EUP"),
    Edit.NARROW: ("MXU",),
    Edit.WIDE: ("VALU", "VLOAD", "VSTORE"),
}
"""Units whose work on its lines it makes less."""


def _saved(run: Run, rewrite: Rewrite) -> float:
    spills, stalls, idle = (
        loss.cycles if (loss := run.loss(kind)) is not None else 0
        for kind in (LossKind.SPILLS, LossKind.STALLS, LossKind.IDLE_STEPS)
    )
    steps = run.pipeline + run.waited
    less = 1 - 1 / rewrite.factor if rewrite.factor > 1 else 0.0
    match rewrite.edit:
        case Edit.LARGER | Edit.VMEM:
            return _net(less * (steps + stalls), (rewrite.factor - 1) * (run.ends + spills / 2))
        case Edit.SMALLER:
            return _net((spills + run.ends) / 2, steps)
        case Edit.STRIPS:
            return (spills + stalls) / 2
        case Edit.RESIDENT:
            return max(idle, less * steps)
        case Edit.SKIP:
            return run.cycles / 2
        case Edit.UNROLL:
            return less * run.units(rewrite.lines, "SALU", "branch")
    away = run.units(rewrite.lines, *_WHOLLY.get(rewrite.edit, ()))
    return away + _SPARED * run.units(rewrite.lines, *_PARTLY.get(rewrite.edit, ()))


def _net(saves: float, costs: float) -> float:
    """What an edit saves less what it makes worse; a little where that is more, because neither is known well."""
    return max(saves - costs, _DOUBTFUL * saves)
