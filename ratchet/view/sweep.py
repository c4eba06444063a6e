"""A sweep as a table, the fastest point first, and as a JSON document."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import Any

from ratchet.kernelfile.knobs import in_words
from ratchet.process.boot import home
from ratchet.values import SweepResult
from ratchet.values.status import Status
from ratchet.view.columns import columns
from ratchet.view.losses import losses_in_words
from ratchet.view.text import clean, clean_lines
from ratchet.view.words import fixed, size

_LIMIT = 76


def ranked(results: Sequence[SweepResult]) -> list[SweepResult]:
    """The fastest first, then what failed."""
    return sorted(results, key=lambda one: one.verdict.score.latency_ms if one.verdict.score else math.inf)


def line(result: SweepResult) -> str:
    """One point as it is done."""
    verdict = result.verdict
    what = f"{fixed(verdict.score.latency_ms)} ms" if verdict.score else _failure(result)
    return clean(f"{in_words(result.point) or 'as it is'}: {what} ({result.seconds:.1f} s)")


def sweep_table(results: Sequence[SweepResult], names: Sequence[str], *, kernel: str) -> str:
    """All points, ranked: knobs, modelled latency, share of the roofline, VMEM, spills, and what limits each."""
    head = [*names, "ms", "util %", "VMEM", "spills", "limited by"]
    lines = [head, *(_cells(result, names) for result in results)]
    text = columns(lines, numbers=True)
    checked = sum(result.verdict.status is Status.PASS for result in results)
    said = "values checked" if checked else "modelled, no values checked: nothing was recorded"
    failed = sum(result.verdict.score is None for result in results)
    text.append(f"{len(results)} points of {clean(kernel)}, {said}; {failed} failed")
    return "\n".join(text)


def offer(best: SweepResult, *, kernel: str) -> str:
    """How to try the best point as an experiment: two commands, each word quoted for a shell."""
    if not best.point:
        return "No point is faster than the file as it is."
    sweep = ["sweep", kernel, *(f"{name}={value!r}" for name, value in best.point.items()), "--apply"]
    experiment = ["--kernel", kernel, f"experiment: {in_words(best.point)}"]
    first, second = (shlex.join([home.PROGRAM, *map(clean, words)]) for words in (sweep, experiment))
    return f"To try the best: {first}\n                 {second}"


def sweep_document(results: Sequence[SweepResult], *, kernel: str, evaluator: str) -> dict[str, Any]:
    """The same as JSON: latencies in ms, sizes in bytes, null where there is none."""
    return {"kernel": kernel, "evaluator": evaluator, "kind": "modelled", "points": [_point(one) for one in results]}


def _point(result: SweepResult) -> dict[str, Any]:
    verdict = result.verdict
    score, footprint = verdict.score, verdict.footprint
    return {
        "point": dict(result.point),
        "status": verdict.status.name,
        "reason": verdict.reason,
        "latency_ms": score.latency_ms if score else None,
        "band_ms": [score.band.low_ms, score.band.high_ms] if score and score.band else None,
        "util_pct": score.util_pct if score else None,
        "score": score.score if score else None,
        "vmem_bytes": footprint.vmem_bytes if footprint else None,
        "spills": footprint.spill_stores + footprint.spill_loads if footprint else None,
        "losses": losses_in_words(verdict.timeline) if verdict.timeline else [],
        "seconds": round(result.seconds, 3),
    }


def _cells(result: SweepResult, names: Sequence[str]) -> list[str]:
    verdict = result.verdict
    score, footprint = verdict.score, verdict.footprint
    knobs = [clean(str(result.point.get(name, "as it is"))) for name in names]
    sizes = (
        [size(footprint.vmem_bytes), str(footprint.spill_stores + footprint.spill_loads)] if footprint else ["-", "-"]
    )
    if score is None:
        return [*knobs, "-", "-", *sizes, _failure(result)]
    losses = losses_in_words(verdict.timeline) if verdict.timeline else []
    limit = clean(losses[0]) if losses else "nothing that is known"
    limit = limit if len(limit) <= _LIMIT else limit[: _LIMIT - 1] + "…"
    return [*knobs, fixed(score.latency_ms), f"{score.util_pct:.2f}", *sizes, limit]


def _failure(result: SweepResult) -> str:
    first = (clean_lines(result.verdict.reason) or [""])[0]
    return f"{result.verdict.status.name}: {first:.{_LIMIT}}"
