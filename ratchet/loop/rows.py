"""From a verdict to its row, and which rows have the score of a kernel. Pure except for the clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ratchet.loop import ledger
from ratchet.loop.decide import Ruling, conditions_of, differences, scored
from ratchet.loop.journal import Plan
from ratchet.values import MEASURED, Conditions, Decision, Row, Verdict

AS_IT_IS = "HEAD's kernel scores"
"""What the reason of a baseline with a score begins with."""


def make_row(
    verdict: Verdict,
    ruling: Ruling,
    *,
    plan: Plan,
    name: str,
    parent: str,
    message: str,
    evidence: str,
) -> Row:
    """The row of experiment ``name``; numbers in full, so that they can be compared to the last digit.

    ``plan`` names the commit, the kernel and its blob. ``previous`` is left empty: the ledger fills it in.
    """
    score, footprint, conditions = verdict.score, verdict.footprint, verdict.conditions
    samples, paired = verdict.samples, verdict.paired
    return Row(
        commit=plan.new,
        score=repr(score.score) if score else "",
        status=ruling.status.name,
        median_ms=repr(score.latency_ms) if score else "",
        util_pct=repr(score.util_pct) if score else "",
        tflops=repr(score.tflops) if score else "",
        regime=score.regime if score else "",
        bw_util_pct=repr(score.bw_util_pct) if score else "",
        note=ledger.note(message),
        id=name,
        time=ledger.utc_now(),
        kernel=plan.kernel,
        kernel_blob=plan.judged,
        evaluator=conditions.evaluator,
        chip=conditions.chip,
        compiler=conditions.compiler,
        seal=conditions.seal,
        problem=conditions.problem,
        parent=parent,
        decision=ruling.decision,
        reason=ruling.reason + _remembered(verdict),
        vmem_bytes=str(footprint.vmem_bytes) if footprint else "",
        spills=str(footprint.spill_stores + footprint.spill_loads) if footprint else "",
        wait_ms=repr(score.wait_ms) if score and not samples else "",
        band_low_ms=repr(score.band.low_ms) if score and score.band else "",
        band_high_ms=repr(score.band.high_ms) if score and score.band else "",
        modelled_ms=repr(verdict.timeline.latency_ms) if verdict.timeline and samples else "",
        speedup=repr(paired.speedup) if paired else "",
        speedup_low=repr(paired.low) if paired else "",
        speedup_high=repr(paired.high) if paired else "",
        launches=str(len(samples.launches)) if samples else "",
        samples=str(samples.calls) if samples else "",
        seconds=f"{verdict.seconds:.1f}",
        evidence=evidence,
        previous="",
    )


def _remembered(verdict: Verdict) -> str:
    """What a row says of a verdict that was not made for it."""
    if verdict.remembered is None:
        return ""
    before = verdict.remembered.experiment or "a sweep"
    return f"; the verdict is remembered: {before} judged the same program at {verdict.remembered.time}"


def newest(rows: tuple[Row, ...], *, kernel: str, blob: str, conditions: Conditions | None = None) -> Row | None:
    """The newest row with the score of ``blob``: under ``conditions``, or under any if None."""
    for row in reversed(rows):
        fits = conditions is None or conditions_of(row) == conditions
        if (row.kernel, row.kernel_blob) == (kernel, blob) and scored(row) is not None and fits:
            return row
    return None


def repeats(rows: Iterable[Row]) -> Mapping[str, str]:
    """Ids of baselines that say nothing new, each with the id of the row that it repeats.

    Such a row judged the kernel that was in place, on the same problem and chip by the same compiler, and modelled the
    latency that was known, to the last digit. What judge made it does not count.
    """
    in_place: dict[tuple[str, ...], Row] = {}
    found: dict[str, str] = {}
    for row in rows:
        place = (row.kernel, row.evaluator, row.chip, row.compiler, row.problem)
        first = in_place.get(place)
        same = first is not None and (first.kernel_blob, first.median_ms) == (row.kernel_blob, row.median_ms)
        if first is not None and same and row.decision == Decision.BASELINE and row.evaluator not in MEASURED:
            found[row.id] = first.id
        elif row.decision in (Decision.KEPT, Decision.BASELINE) and scored(row) is not None:
            in_place[place] = row
    return found


def comparisons(rows: tuple[Row, ...], begun: Collection[str]) -> int:
    """How often the ledger's error budget was drawn on: comparisons with a row, and experiments begun without one.

    ``begun`` are the ids of all experiments that git knows of. One that was interrupted may have been looked at.
    """
    known = {row.id for row in rows}
    return sum(row.speedup != "" for row in rows) + sum(name not in known for name in begun)


def baseline_reason(verdict: Verdict, earlier: Row | None) -> str:
    """What a verdict on HEAD's own kernel says, beside ``earlier``, the newest scored row of the same kernel."""
    if verdict.score is None:
        return f"{verdict.status.name}: {verdict.reason}"
    score = verdict.score.score
    measured = verdict.conditions.evaluator in MEASURED
    mean = f", the mean of {len(verdict.problems)} problems" if verdict.problems else ""
    text = f"{AS_IT_IS} {score:.6g}, {'measured' if measured else 'modelled'}{mean}"
    if earlier is None:
        return text
    if differing := differences(conditions_of(earlier), verdict.conditions):
        return f"{text}; row {earlier.id} has {earlier.score} under other conditions: {', '.join(differing)}"
    if measured:
        return f"{text}; row {earlier.id} has {earlier.score}, which is noise: only paired launches are compared"
    if scored(earlier) == score:
        return f"{text}: the same to the last digit as row {earlier.id}"
    return f"{text}; row {earlier.id} has {earlier.score} under the same conditions: NOT reproduced"


def no_change_reason(row: Row) -> str:
    """Why there is nothing to judge: ``row`` has the score of HEAD's kernel already."""
    return (
        f"{row.kernel} is what HEAD has (blob {row.kernel_blob[:10]}), and row {row.id} judged it already: score "
        f"{row.score}, under the same evaluator ({row.evaluator}, {row.chip}), compiler ({row.compiler}), seal "
        f"({row.seal[:10]}) and problem ({row.problem[:10]}); edit {row.kernel} first"
    )
