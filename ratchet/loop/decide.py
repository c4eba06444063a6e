"""Keep or revert: the one place where two scores are compared. Pure: no I/O, no clock."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from ratchet.loop.compare import compare, of_row, of_score
from ratchet.loop.series import series_of
from ratchet.values import MEASURED, Bar, Conditions, Decision, Paired, ProblemCost, Row, Score, Verdict
from ratchet.values.status import Status

FASTER, SLOWER = "faster", "slower"
SAME, EQUAL = "counts as the same", "the same to the last digit"
BEGINNINGS = (FASTER, SLOWER, SAME, EQUAL)
"""What the reason of a modelled ruling begins with."""
_LAST_KERNEL_STATUS = 49  # exit codes above it are the judge's own troubles


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """What becomes of one verdict: a word of ``Decision``, the outcome's status and why, in words."""

    decision: str
    status: Status
    reason: str


def decide(candidate: Verdict, incumbent: Row | None, *, accept_trade: bool = False) -> Ruling:
    """Decides whether ``candidate`` replaces ``incumbent``, the newest scored row of HEAD's kernel.

    ``incumbent`` is None when HEAD has no kernel, or none that passes: then the first PASS is kept.
    A verdict that does not speak of the kernel (the judge's tools failed) is ruled ``judged``: git and
    the working tree are left alone. ``accept_trade`` keeps a modelled gain that counts as the same because it is too
    near to be ranked (``ratchet/loop/compare.py``); the reason says that it was kept on purpose.

    Raises:
        ValueError: both have a score but not under equal conditions (judge the incumbent again first), or
            the evaluator measures on a device and the two were not timed beside each other: then two medians
            decide nothing.
    """
    if not speaks_of_the_kernel(candidate.status):
        reason = f"{candidate.status.name}: {candidate.reason}; the kernel is not to blame and was left as it is"
        return Ruling(decision=Decision.JUDGED, status=candidate.status, reason=reason)
    if candidate.score is None:
        reason = f"{candidate.status.name}: {candidate.reason}"
        return Ruling(decision=Decision.REVERTED, status=candidate.status, reason=reason)
    score = candidate.score
    if candidate.status is Status.UNCHECKED:
        reason = too_slow(score, incumbent, accept_trade=accept_trade) or candidate.reason
        return Ruling(decision=Decision.REVERTED, status=Status.UNCHECKED, reason=reason)
    if not is_possible(score.score):
        reason = f"score {score.score!r} is not a possible number (wanted: finite and above zero)"
        return Ruling(decision=Decision.REVERTED, status=Status.INVALID, reason=reason)
    measured = candidate.conditions.evaluator in MEASURED
    if any(one.slower for one in candidate.problems):
        return _not_better(_paid(candidate.problems))
    if incumbent is None or scored(incumbent) is None:
        how = "measured" if measured else "modelled"
        reason = f"the first kernel that passes, score {score.score:.6g}, {how}"
        return _kept(reason)
    if differing := differences(candidate.conditions, conditions_of(incumbent)):
        raise ValueError(f"not comparable, these differ: {', '.join(differing)}")
    if not measured:
        return _modelled(score, incumbent, accept_trade=accept_trade, problems=candidate.problems)
    if candidate.paired is None:
        on = candidate.conditions.evaluator
        raise ValueError(f"{on} scores are measured: one median against another decides nothing")
    return _paired(candidate.paired, incumbent)


def bar(incumbent: Row | None, *, accept_trade: bool = False) -> Bar | None:
    """Why a modelled score could not replace ``incumbent``, whatever its values; None where every PASS is kept."""
    if not _is_modelled_bar(incumbent):
        return None
    return functools.partial(too_slow, incumbent=incumbent, accept_trade=accept_trade)


def too_slow(score: Score, incumbent: Row | None, *, accept_trade: bool = False) -> str:
    """Why a modelled ``score`` cannot replace ``incumbent``; ``""`` where it could, or where no bar is known."""
    if incumbent is None or not _is_modelled_bar(incumbent) or not is_possible(score.score):
        return ""
    ruling = _modelled(score, incumbent, accept_trade=accept_trade)
    return ruling.reason if ruling.decision == Decision.REVERTED else ""


def _is_modelled_bar(incumbent: Row | None) -> bool:
    return incumbent is not None and scored(incumbent) is not None and incumbent.evaluator not in MEASURED


def _modelled(score: Score, incumbent: Row, *, accept_trade: bool, problems: Sequence[ProblemCost] = ()) -> Ruling:
    """The ruling on a modelled score beside that of ``incumbent``, which has one.

    A reason begins with its cause, as far as the first semicolon: ``ratchet.view.text.cause``.
    """
    new, old = score.score, float(incumbent.score)
    before, now = float(incumbent.median_ms or 0), score.latency_ms
    times = f"{_milliseconds(incumbent.median_ms)} -> {_milliseconds(now)} ms, modelled"
    what = f"time {_change(now / before)} ({times})" if before and before != now else f"time {times}"
    if problems:
        what = f"mean of {len(problems)} problems: {what}{_worst(problems)}"
    which = f"{old:.6g} of row {incumbent.id} at {incumbent.commit[:10]}"
    if new == old:
        return _not_better(f"{EQUAL}: {what}; score {new:.6g}, as row {incumbent.id}")
    numbers = f"score {new:.6g} is {abs(new - old) / old * 100:.3g} % {'above' if new > old else 'below'} {which}"
    comparison = compare(of_score(score), of_row(incumbent))
    if not comparison.same and new > old:
        return _kept(f"{FASTER}: {what}; {numbers}; {comparison.reason}")
    if not comparison.same:
        return _not_better(f"{SLOWER}: {what}; {numbers}")
    near = f"{SAME}, {comparison.kind}: {what}; {comparison.reason}; {numbers}"
    if new < old:
        return _not_better(near)
    if accept_trade:
        return _kept(f"{FASTER}: {what}; too near to be ranked, accepted on purpose; {comparison.reason}; {numbers}")
    return _not_better(f"{near}; --accept-trade keeps it on purpose")


def _change(ratio: float) -> str:
    """What becomes of the time, with its sign; never with an exponent above a thousand per cent."""
    share = 100 * (ratio - 1)
    return f"{share:+.3g} %" if abs(share) < 999.5 else f"{share:+.0f} %"


def _worst(problems: Sequence[ProblemCost]) -> str:
    compared = [one for one in problems if one.ratio is not None]
    if not compared:
        return ""
    worst = max(compared, key=lambda one: one.ratio or 0)
    return f", worst {_of_problem(worst)}"


def _paid(problems: Sequence[ProblemCost]) -> str:
    """Which problems pay for the others, the worst first."""
    slower = sorted((one for one in problems if one.slower), key=lambda one: -(one.ratio or 0))
    allowed = f"at most {slower[0].allowed_share * 100:g} % is allowed"
    each = ", ".join(map(_of_problem, slower))
    return f"{SLOWER} than HEAD's file at {len(slower)} of {len(problems)} problems: {each}, {allowed}"


def _of_problem(one: ProblemCost) -> str:
    moved = f"{_milliseconds(one.before_ms or 0)} -> {_milliseconds(one.latency_ms or 0)} ms"
    return f"{one.name} {_change(one.ratio or 1)} ({moved})" if one.ratio != 1 else f"{one.name} as before"


def _kept(reason: str) -> Ruling:
    return Ruling(decision=Decision.KEPT, status=Status.PASS, reason=reason)


def _not_better(reason: str) -> Ruling:
    return Ruling(decision=Decision.REVERTED, status=Status.NOT_BETTER, reason=reason)


_ANSWERS = {
    "faster": (Decision.KEPT, Status.PASS, "faster"),
    "not faster": (Decision.REVERTED, Status.NOT_BETTER, "not faster"),
    "cannot tell": (Decision.REVERTED, Status.CANNOT_TELL, "not to be told apart"),
}


def _paired(paired: Paired, incumbent: Row) -> Ruling:
    """The ruling on a kernel that was timed beside the incumbent."""
    decision, status, said = _ANSWERS[paired.answer]
    where = f"{(paired.speedup - 1) * 100:+.2f} %"
    if paired.low > 0 and math.isfinite(paired.high):
        where += f" (95 %: {(paired.low - 1) * 100:+.2f} to {(paired.high - 1) * 100:+.2f})"
    reason = (
        f"{said}: {where}, measured side by side with row {incumbent.id} at {incumbent.commit[:10]}; {paired.launches} "
        f"launches, {paired.samples} calls of each; comparison {paired.test} of this ledger, which may err with a "
        f"probability of {paired.level:.2g}"
    )
    if status is Status.CANNOT_TELL and (paired.more_launches is None or paired.more_seconds is None):
        reason += "; launches like these would never decide it"
    elif status is Status.CANNOT_TELL and paired.more_seconds is not None:
        reason += (
            f"; about {paired.more_launches} launches more would decide it if they are like these: "
            f"--budget {math.ceil(paired.seconds + paired.more_seconds)}"
        )
    return Ruling(decision=decision, status=status, reason=reason)


def is_possible(score: float) -> bool:
    """Whether a kernel can have this score at all: NaN, infinity, zero and negative numbers never win."""
    return math.isfinite(score) and score > 0


def scored(row: Row | None) -> float | None:
    """The score of a row that may serve as the bar, or None."""
    if row is None or row.status not in (Status.PASS.name, Status.NOT_BETTER.name, Status.CANNOT_TELL.name):
        return None
    try:
        score = float(row.score)
    except ValueError:
        return None
    return score if is_possible(score) else None


def speaks_of_the_kernel(status: Status) -> bool:
    """Whether a verdict with this status says something about the kernel, and not about the judge's machine."""
    return status is not Status.USAGE and status.exit_code <= _LAST_KERNEL_STATUS


def conditions_of(row: Row) -> Conditions:
    """The conditions a row was judged under."""
    return Conditions(
        evaluator=row.evaluator,
        chip=row.chip,
        compiler=row.compiler,
        seal=row.seal,
        problem=row.problem,
        series=series_of(row.seal),
    )


def differences(one: Conditions, other: Conditions) -> tuple[str, ...]:
    """What differs between two sets of conditions, each as ``name (one, other)``."""
    compared = [field.name for field in fields(Conditions) if field.compare]
    pairs = ((name, getattr(one, name), getattr(other, name)) for name in compared)
    return tuple(f"{name} ({a or 'none'}, {b or 'none'})" for name, a, b in pairs if a != b)


def _milliseconds(value: str | float) -> str:
    return f"{float(value or 'nan'):.4g}"
