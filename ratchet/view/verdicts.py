"""Several verdicts as a table and as a JSON document: of a sweep's points, of a kernel's problems, of every chip."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from ratchet.kernelfile.knobs import in_words
from ratchet.loop.same import SAME_PROGRAM, program_of, why_same
from ratchet.process.boot import home
from ratchet.tpu.chips.fitted import Checked, checked
from ratchet.values import Band, Footprint, Score, SweepResult, Verdict
from ratchet.values.omission import Unmodelled
from ratchet.values.status import Status
from ratchet.view.document import BAND_MS, MODELLED, Tables, outcome, plain, same
from ratchet.view.losses import UNMODELLED, losses_in_words
from ratchet.view.text import clean, columns, cut, first_line, fixed, size

_REASON = 400
"""Characters of a reason that are shown."""
_LIMIT = 76


# --- a sweep ---


def ranked(results: Sequence[SweepResult]) -> list[SweepResult]:
    """The fastest first, then what failed."""
    return sorted(results, key=lambda one: one.verdict.score.latency_ms if one.verdict.score else math.inf)


def sweep_line(result: SweepResult) -> str:
    """One point as it is done."""
    verdict = result.verdict
    what = f"{fixed(verdict.score.latency_ms)} ms" if verdict.score else _failure(verdict)
    return clean(f"{in_words(result.point) or 'as it is'}: {what} ({result.seconds:.1f} s)")


def sweep_table(results: Sequence[SweepResult], names: Sequence[str], *, kernel: str) -> str:
    """All points, ranked: knobs, modelled latency, share of the roofline, VMEM, spills, and what limits each."""
    head = [*names, "ms", "util %", "VMEM", "spills", "limited by"]
    text = columns([head, *(_of_point(result, names, results) for result in results)], numbers=True)
    failed = sum(result.verdict.score is None for result in results)
    checked = sum(result.verdict.status is Status.PASS for result in results)
    values = f"values of {checked} checked" if checked else "no values checked"
    said = values if checked + failed == len(results) else f"modelled, {values}: nothing was recorded"
    return "\n".join([*text, f"{len(results)} points of {clean(kernel)}, {said}; {failed} failed"])


def same_program(one: SweepResult, other: SweepResult) -> bool:
    """Whether two points compiled to one program, as far as is known."""
    return program_of(one.verdict) == program_of(other.verdict) != ""


def near(one: SweepResult, results: Sequence[SweepResult]) -> str:
    """Why a point counts as the same as the file as it is; ``""`` where it does not, or that is not known."""
    base = _as_it_is(results)
    if base is None or base is one or base.verdict.score is None or one.verdict.score is None:
        return ""
    why = why_same(one.verdict.score, program_of(one.verdict), base.verdict.score, program_of(base.verdict))
    return f"counts as the same as the file: {why}" if why and why != SAME_PROGRAM else why


def best_of(results: Sequence[SweepResult]) -> SweepResult | None:
    """Of ranked points the first that counts as faster than the file as it is; None where none does."""
    base = _as_it_is(results)
    bar = base.verdict.score.latency_ms if base and base.verdict.score else math.inf
    faster = (one for one in results if one.point and one.verdict.score and one.verdict.score.latency_ms < bar)
    return next((one for one in faster if not near(one, results)), None)


def _as_it_is(results: Sequence[SweepResult]) -> SweepResult | None:
    return next((one for one in results if not one.point), None)


def offer(results: Sequence[SweepResult], *, kernel: str) -> str:
    """How to try the best point as an experiment: two commands, each word quoted for a shell."""
    best = best_of(results)
    if best is None:
        return "No point is faster than the file as it is."
    sweep = ["sweep", kernel, *(f"{name}={value!r}" for name, value in best.point.items()), "--apply"]
    experiment = ["--kernel", kernel, f"experiment: {in_words(best.point)}"]
    first, second = (shlex.join([home.PROGRAM, *map(clean, words)]) for words in (sweep, experiment))
    return f"To try the best: {first}\n                 {second}"


def sweep_document(results: Sequence[SweepResult], *, kernel: str, evaluator: str) -> dict[str, Any]:
    """The same as JSON: latencies in ms, sizes in bytes, null where there is none."""
    tables: Tables = {
        **BAND_MS,
        SweepResult: {
            "point": "point",
            **same("status", "reason", of="verdict"),
            **same("latency_ms", "util_pct", "score", of="verdict.score"),
            "band_ms": "verdict.score.band",
            **same("vmem_bytes", "spills", of="verdict.footprint"),
            "losses": lambda result: _losses(result.verdict),
            "seconds": lambda result: round(result.seconds, 3),
        },
    }
    return {"kernel": kernel, "evaluator": evaluator, "kind": "modelled", "points": plain(results, tables)}


def _of_point(result: SweepResult, names: Sequence[str], results: Sequence[SweepResult]) -> list[str]:
    verdict = result.verdict
    score, footprint = verdict.score, verdict.footprint
    knobs = [clean(str(result.point.get(name, "as it is"))) for name in names]
    sizes = [size(footprint.vmem_bytes), str(footprint.spills)] if footprint else ["-", "-"]
    if score is None:
        return [*knobs, "-", "-", *sizes, _failure(verdict)]
    before = results[: results.index(result)]
    twin = next((one for one in before if one.point and same_program(one, result)), None)
    said = near(result, results) or (f"the same program as {in_words(twin.point)}" if twin and result.point else "")
    limit = cut(clean(said or next(iter(_losses(verdict)), "nothing that is known")), _LIMIT)
    return [*knobs, fixed(score.latency_ms), f"{score.util_pct:.2f}", *sizes, limit]


def _losses(verdict: Verdict) -> list[str]:
    return losses_in_words(verdict.timeline) if verdict.timeline else []


def _failure(verdict: Verdict) -> str:
    return f"{verdict.status.name}: {first_line(verdict.reason):.{_LIMIT}}"


# --- every chip ---


def across_table(verdicts: Sequence[Verdict]) -> str:
    """One line per chip; below them why a chip has no latency."""
    head = ["chip", "latency", "90 % band", "roofline", "VMEM used of limit", "bound by", "model checked on"]
    cells = [
        [
            verdict.conditions.chip,
            _latency(verdict),
            _band(verdict.score),
            _roofline(verdict.score),
            _vmem(verdict.footprint),
            _bound_by(verdict.score),
            _checked(checked(verdict.conditions.chip)),
        ]
        for verdict in verdicts
    ]
    streams = [
        one.conditions.chip for one in verdicts if one.timeline and Unmodelled.STREAMS in one.timeline.not_modelled
    ]
    wide = [f"{', '.join(streams)}: {UNMODELLED[Unmodelled.STREAMS]}"] if streams else []
    why = _why((one.conditions.chip, one) for one in verdicts)
    return "\n".join([*columns([head, *cells]), *wide, *why])


def across_document(verdicts: Sequence[Verdict], status: Status) -> dict[str, Any]:
    """The table as plain JSON values; what a chip does not have is null. ``status`` decides the exit code."""
    tables: Tables = {
        Verdict: {
            **same("chip", "evaluator", "compiler", of="conditions"),
            **MODELLED,
            **same("status", "reason"),
            **same("latency_ms", "util_pct", of="score"),
            "band": "score.band",
            "bound_by": "score.band.bound_by",
            **same("vmem_bytes", "vmem_limit_bytes", of="footprint"),
            "checked": lambda verdict: checked(verdict.conditions.chip),
        },
        Band: same("low_ms", "high_ms"),
    }
    return {"outcome": outcome(status), **_kernel(verdicts[0]), "chips": plain(verdicts, tables)}


def _checked(known: Checked | None) -> str:
    if known is None:
        return "no published timing"
    kind = "held out" if known.held_out else "fitted on them"
    return f"{known.rows} timings, {known.mean:.1%} off, {known.largest:.0%} at most, {kind}, with {known.compiler}"


# --- several problems ---


def problems_table(problems: Sequence[tuple[str, Verdict]], mean: Score | None) -> str:
    """One line per problem and one for the geometric mean; below them why a problem has no latency."""
    cells = [["problem", "chip", "latency", "roofline", "bound by", "VMEM used of limit", "spills"]]
    cells += [
        [
            clean(name),
            verdict.conditions.chip,
            _latency(verdict),
            _roofline(verdict.score),
            _bound_by(verdict.score),
            _vmem(verdict.footprint),
            str(verdict.footprint.spills) if verdict.footprint else "",
        ]
        for name, verdict in problems
    ]
    if mean is not None and len(problems) > 1:
        cells.append(["geometric mean", "", f"{fixed(mean.latency_ms)} ms", _roofline(mean), "", "", ""])
    return "\n".join([*columns(cells), *_why((clean(name), verdict) for name, verdict in problems)])


def problems_document(
    problems: Sequence[tuple[str, Verdict]], mean: Score | None, status: Status, *, reason: str
) -> dict[str, Any]:
    """The table as plain JSON values; what a problem does not have is null. ``status`` decides the exit code."""
    tables: Tables = {
        Verdict: {
            "chip": "conditions.chip",
            **same("status", "reason"),
            "problem": "conditions.problem",
            **same("score", "latency_ms", "util_pct", of="score"),
            "band_low_ms": "score.band.low_ms",
            "band_high_ms": "score.band.high_ms",
            **same("vmem_bytes", "vmem_limit_bytes", "spills", of="footprint"),
        }
    }
    return {
        "outcome": outcome(status),
        "reason": reason,
        **_kernel(problems[0][1]),
        "score": mean.score if mean else None,
        "latency_ms": mean.latency_ms if mean else None,
        "problems": [{"name": name, **plain(verdict, tables)} for name, verdict in problems],
    }


# --- cells ---


def _kernel(verdict: Verdict) -> dict[str, str]:
    return {"kernel": verdict.kernel, "source_sha256": verdict.source_sha256}


def _latency(verdict: Verdict) -> str:
    return f"{fixed(verdict.score.latency_ms)} ms" if verdict.score else verdict.status.name


def _band(score: Score | None) -> str:
    return f"{fixed(score.band.low_ms, 4)} to {fixed(score.band.high_ms, 4)}" if score and score.band else ""


def _roofline(score: Score | None) -> str:
    return f"{score.util_pct:.2f} %" if score else ""


def _bound_by(score: Score | None) -> str:
    return score.band.bound_by if score and score.band else ""


def _vmem(memory: Footprint | None) -> str:
    return f"{size(memory.vmem_bytes)} of {size(memory.vmem_limit_bytes)}" if memory else ""


def _why(named: Iterator[tuple[str, Verdict]]) -> list[str]:
    """Why one has no latency."""
    failed = ((name, verdict) for name, verdict in named if verdict.status is not Status.PASS)
    return [f"{name}: {clean(verdict.reason)[:_REASON]}" for name, verdict in failed]
