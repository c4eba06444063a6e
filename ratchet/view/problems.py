"""Several problems of one kernel: a table, and the same as a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ratchet.values import Score, Verdict
from ratchet.values.status import Status
from ratchet.view.text import clean
from ratchet.view.words import fixed, size

_HEADINGS = ("problem", "chip", "latency", "roofline", "bound by", "VMEM used of limit", "spills")
_REASON = 400


def problems_table(problems: Sequence[tuple[str, Verdict]], mean: Score | None) -> str:
    """One line per problem and one for the geometric mean; below them why a problem has no latency."""
    lines = [_HEADINGS, *(_cells(name, verdict) for name, verdict in problems)]
    if mean is not None and len(problems) > 1:
        lines.append(("geometric mean", "", f"{fixed(mean.latency_ms)} ms", f"{mean.util_pct:.2f} %", "", "", ""))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(cell.ljust(wide) for cell, wide in zip(line, widths, strict=True)).rstrip() for line in lines]
    why = [
        f"{clean(name)}: {clean(verdict.reason)[:_REASON]}"
        for name, verdict in problems
        if verdict.status is not Status.PASS
    ]
    return "\n".join([*table, *why])


def problems_document(
    problems: Sequence[tuple[str, Verdict]], mean: Score | None, outcome: Status, *, reason: str
) -> dict[str, Any]:
    """The table as plain JSON values; what a problem does not have is null. ``outcome`` decides the exit code."""
    return {
        "outcome": {"status": outcome.name, "exit_code": outcome.exit_code, "meaning": outcome.meaning},
        "reason": reason,
        "kernel": problems[0][1].kernel,
        "source_sha256": problems[0][1].source_sha256,
        "score": mean.score if mean else None,
        "latency_ms": mean.latency_ms if mean else None,
        "problems": [_entry(name, verdict) for name, verdict in problems],
    }


def _cells(name: str, verdict: Verdict) -> tuple[str, ...]:
    score, memory = verdict.score, verdict.footprint
    return (
        clean(name),
        verdict.conditions.chip,
        f"{fixed(score.latency_ms)} ms" if score else verdict.status.name,
        f"{score.util_pct:.2f} %" if score else "",
        score.band.bound_by if score and score.band else "",
        f"{size(memory.vmem_bytes)} of {size(memory.vmem_limit_bytes)}" if memory else "",
        str(memory.spill_stores + memory.spill_loads) if memory else "",
    )


def _entry(name: str, verdict: Verdict) -> dict[str, Any]:
    score, memory = verdict.score, verdict.footprint
    return {
        "name": name,
        "chip": verdict.conditions.chip,
        "status": verdict.status.name,
        "reason": verdict.reason,
        "problem": verdict.conditions.problem,
        "score": score.score if score else None,
        "latency_ms": score.latency_ms if score else None,
        "util_pct": score.util_pct if score else None,
        "band_low_ms": score.band.low_ms if score and score.band else None,
        "band_high_ms": score.band.high_ms if score and score.band else None,
        "vmem_bytes": memory.vmem_bytes if memory else None,
        "vmem_limit_bytes": memory.vmem_limit_bytes if memory else None,
        "spills": memory.spill_stores + memory.spill_loads if memory else None,
    }
