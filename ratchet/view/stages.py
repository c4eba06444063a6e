"""What each stage of a verdict took, which one refused, what was left out for it, and what that saved."""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.values import Row, Step, Verdict
from ratchet.values.status import Status
from ratchet.view.words import kind_of, number

STAGES = (
    "contract",
    "problem",
    "compile",
    "memory",
    "copies",
    "kernel",
    "correctness",
    "schedule",
    "control",
    "roofline",
    "audit",
)
"""The steps of every modelled verdict, in the order of ``prepare.py``."""
_SHOWN_S = 0.05
"""Seconds below which a step that passed is not worth a word."""


def stages(verdict: Verdict, incumbent: Row | None = None) -> list[str]:
    """Of a verdict that did not take every stage: seconds of each, which refused; what was left out, seconds saved.

    Stages run beside each other, so their seconds add up to more than those of the verdict. Saved are the seconds by
    which the verdict was shorter than the incumbent's, whose row has them. Nothing where every stage ran and passed.
    """
    left_out = _left_out(verdict)
    if not left_out and all(step.status is Status.PASS for step in verdict.steps):
        return []
    said = [_stage(step) for step in verdict.steps if step.seconds >= _SHOWN_S or step.status is not Status.PASS]
    rest = [*([f"left out: {', '.join(left_out)}"] if left_out else []), *_saved(verdict, incumbent)]
    return [f"{verdict.seconds:.1f} s: " + " · ".join(said), *([" · ".join(rest)] if rest else [])]


def _stage(step: Step) -> str:
    match step.status:
        case Status.PASS:
            return f"{step.name} {step.seconds:.1f}"
        case Status.UNCHECKED:
            return f"{step.name} not checked, ended after {step.seconds:.1f}"
        case _:
            return f"{step.name} refused after {step.seconds:.1f}"


def _left_out(verdict: Verdict) -> Sequence[str]:
    """Stages of a modelled verdict that did not run; of a remembered one, when it was made."""
    ran = {step.name for step in verdict.steps}
    modelled = kind_of(verdict.conditions.evaluator) == "modelled"
    return [name for name in STAGES if name not in ran] if ran and modelled else []


def _saved(verdict: Verdict, incumbent: Row | None) -> list[str]:
    before = number(incumbent.seconds) if incumbent is not None else None
    if before is None or before - verdict.seconds < _SHOWN_S:
        return []
    return [f"{before - verdict.seconds:.1f} s less than the {before:.1f} s of the incumbent's verdict"]
