"""A modelled run of any file: every source line costs something on each unit, and there is every kind of loss."""

from __future__ import annotations

from dataclasses import replace

from ratchet.values import SourceLine, Timeline
from ratchet.values.loss import LossKind
from ratchet.values.place import Code, Place
from tests.view import timelines

CYCLES = 100_000
LINES = 120
UNITS = ("MXU", "XLU", "VALU", "VPOP", "EUP", "VLOAD", "VSTORE", "SALU")


def run(file: str, *, spills: bool = False) -> Timeline:
    """Of ``file``; lines cost 240 cycles each, the pipeline the rest."""
    blame = timelines.blame(CYCLES, file)
    (one,) = blame.lines

    def cost(place: Place, cycles: int, waits: int) -> object:
        issued = dict.fromkeys(UNITS, (cycles - waits) // len(UNITS))
        return replace(one, place=place, cycles=cycles, issue_cycles=issued, wait_cycles=waits)

    lines = [cost(SourceLine(file=file, line=line), 240, 0) for line in range(1, LINES + 1)]
    lines.append(cost(Code.PIPELINE, CYCLES - 240 * LINES, 30_000))
    losses = tuple(loss for loss in blame.losses if spills or loss.kind is not LossKind.SPILLS)
    blame = replace(blame, lines=tuple(lines), losses=losses)  # type: ignore[arg-type]
    return replace(timelines.timeline(), cycles=CYCLES, blame=blame)
