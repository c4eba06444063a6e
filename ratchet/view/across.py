"""One kernel on every chip: a table, and the same as a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ratchet.tpu.chips.checked import Checked, checked
from ratchet.values import Footprint, Score, Verdict
from ratchet.values.status import Status
from ratchet.view.columns import columns
from ratchet.view.text import clean
from ratchet.view.words import fixed, size

_HEADINGS = ("chip", "latency", "90 % band", "roofline", "VMEM used of limit", "bound by", "model checked on")
_REASON = 400
"""Characters of a reason that are shown."""


def across_table(verdicts: Sequence[Verdict]) -> str:
    """One line per chip; below them why a chip has no latency."""
    lines = [_HEADINGS, *(_cells(verdict) for verdict in verdicts)]
    why = [
        f"{verdict.conditions.chip}: {clean(verdict.reason)[:_REASON]}"
        for verdict in verdicts
        if verdict.status is not Status.PASS
    ]
    return "\n".join([*columns(lines), *why])


def across_document(verdicts: Sequence[Verdict], outcome: Status) -> dict[str, Any]:
    """The table as plain JSON values; what a chip does not have is null. ``outcome`` decides the exit code."""
    return {
        "outcome": {"status": outcome.name, "exit_code": outcome.exit_code, "meaning": outcome.meaning},
        "kernel": verdicts[0].kernel,
        "source_sha256": verdicts[0].source_sha256,
        "chips": [_entry(verdict) for verdict in verdicts],
    }


def _cells(verdict: Verdict) -> tuple[str, ...]:
    score, memory = verdict.score, verdict.footprint
    return (
        verdict.conditions.chip,
        f"{fixed(score.latency_ms)} ms" if score else verdict.status.name,
        _band(score),
        f"{score.util_pct:.2f} %" if score else "",
        _vmem(memory),
        score.band.bound_by if score and score.band else "",
        _checked(checked(verdict.conditions.chip)),
    )


def _band(score: Score | None) -> str:
    return f"{fixed(score.band.low_ms, 4)} to {fixed(score.band.high_ms, 4)}" if score and score.band else ""


def _vmem(memory: Footprint | None) -> str:
    return f"{size(memory.vmem_bytes)} of {size(memory.vmem_limit_bytes)}" if memory else ""


def _checked(known: Checked | None) -> str:
    if known is None:
        return "no published timing"
    kind = "held out" if known.held_out else "fitted on them"
    return f"{known.rows} timings, {known.mean:.1%} off, {known.largest:.0%} at most, {kind}"


def _entry(verdict: Verdict) -> dict[str, Any]:
    score, memory, known = verdict.score, verdict.footprint, checked(verdict.conditions.chip)
    band = score.band if score else None
    return {
        "chip": verdict.conditions.chip,
        "evaluator": verdict.conditions.evaluator,
        "kind": "modelled",
        "compiler": verdict.conditions.compiler,
        "status": verdict.status.name,
        "reason": verdict.reason,
        "latency_ms": score.latency_ms if score else None,
        "band": {"low_ms": band.low_ms, "high_ms": band.high_ms} if band else None,
        "bound_by": band.bound_by if band else None,
        "util_pct": score.util_pct if score else None,
        "vmem_bytes": memory.vmem_bytes if memory else None,
        "vmem_limit_bytes": memory.vmem_limit_bytes if memory else None,
        "checked": vars(known) if known else None,
    }
