"""Keep or revert: the one place where two scores are compared. Pure: no I/O, no clock."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, fields

from ratchet.loop.compare import compare, of_row, of_score
from ratchet.loop.series import series_of
from ratchet.values import MEASURED, Bar, Conditions, Decision, Paired, Row, Score, Verdict
from ratchet.values.status import Status

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
    if incumbent is None or scored(incumbent) is None:
        how = "measured" if measured else "modelled"
        reason = f"the first kernel that passes, score {score.score:.6g}, {how}"
        return _kept(reason)
    if differing := differences(candidate.conditions, conditions_of(incumbent)):
        raise ValueError(f"not comparable, these differ: {', '.join(differing)}")
    if not measured:
        return _modelled(score, incumbent, accept_trade=accept_trade)
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


def _modelled(score: Score, incumbent: Row, *, accept_trade: bool) -> Ruling:
    """The ruling on a modelled score beside that of ``incumbent``, which has one."""
    new, old = score.score, float(incumbent.score)
    against = f"{old:.6g} of row {incumbent.id} at {incumbent.commit[:10]}"
    times = f"{_milliseconds(incumbent.median_ms)} -> {_milliseconds(score.latency_ms)} ms, modelled"
    if (before := float(incumbent.median_ms or 0)) and before != score.latency_ms:
        times += f": time {100 * (score.latency_ms / before - 1):+.3g} %"
    by = f"{abs(new - old) / old * 100:.3g} %"
    if new == old:
        return _not_better(f"score {new:.6g} is the same to the last digit as {against}, modelled")
    comparison = compare(of_score(score), of_row(incumbent))
    why = comparison.reason
    if not comparison.same:
        if new > old:
            return _kept(f"score {new:.6g} beats {against} by {by} ({times}); {why}")
        return _not_better(f"score {new:.6g} is {by} below {against} ({times})")
    if new < old:
        return _not_better(f"score {new:.6g} counts as the same as {against} ({times}): {why}")
    if accept_trade:
        too_near = "too near to be ranked, accepted on purpose"
        return _kept(f"score {new:.6g} beats {against} by {by} ({times}); {too_near}: {why}")
    same = f"score {new:.6g} is {by} above {against} ({times}) but counts as the same"
    return _not_better(f"{same}: {why}; --accept-trade keeps it on purpose")


def _kept(reason: str) -> Ruling:
    return Ruling(decision=Decision.KEPT, status=Status.PASS, reason=reason)


def _not_better(reason: str) -> Ruling:
    return Ruling(decision=Decision.REVERTED, status=Status.NOT_BETTER, reason=reason)


_ANSWERS = {
    "faster": (Decision.KEPT, Status.PASS, "faster than"),
    "not faster": (Decision.REVERTED, Status.NOT_BETTER, "not faster than"),
    "cannot tell": (Decision.REVERTED, Status.CANNOT_TELL, "not distinguishable from"),
}


def _paired(paired: Paired, incumbent: Row) -> Ruling:
    """The ruling on a kernel that was timed beside the incumbent."""
    decision, status, said = _ANSWERS[paired.answer]
    where = f"{(paired.speedup - 1) * 100:+.2f} %"
    if paired.low > 0 and math.isfinite(paired.high):
        where += f" (95 %: {(paired.low - 1) * 100:+.2f} to {(paired.high - 1) * 100:+.2f})"
    reason = (
        f"{said} row {incumbent.id} at {incumbent.commit[:10]}, measured side by side: {where}, {paired.launches} "
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
