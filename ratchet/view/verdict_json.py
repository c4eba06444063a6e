"""The verdict as one JSON document: what ``--json`` prints, described by ``ratchet/view/verdict.schema.json``.

A document says how one turn ended. ``verdict`` is null where nothing was judged. Every number about
the kernel's speed is beside its ``evaluator`` and ``kind``: ``modelled`` or ``measured``.
``seconds`` are always the judge's own, by the wall clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ratchet.values import SCHEMA_VERSION, Row, Samples, Step, Timeline, Verdict
from ratchet.values.blame import Blame, LineCost
from ratchet.values.loss import (
    IdleSteps,
    Key,
    LinkWaits,
    Loss,
    MatrixBound,
    NothingLeft,
    Refuted,
    Spills,
    Stalls,
    UnitStall,
    Waits,
)
from ratchet.values.omission import Omission, Unmodelled
from ratchet.values.place import Code, SourceLine
from ratchet.values.status import Status
from ratchet.view.hints import hint
from ratchet.view.losses import losses_in_words, notes
from ratchet.view.places import where
from ratchet.view.words import kind_of, number, reason_beyond, summary_beyond

SCHEMA_PATH = Path(__file__).with_name("verdict.schema.json")


def verdict_document(  # noqa: PLR0913 - the verdict, and by keyword what the loop adds to it
    verdict: Verdict | None,
    *,
    outcome: Status,
    decision: str | None,
    reason: str,
    id: str | None = None,
    commit: str | None = None,
    incumbent: Row | None = None,
    refuted: Mapping[Key, Refuted] | None = None,
) -> dict[str, Any]:
    """The document of one turn, as plain JSON values. ``refuted``: losses that were removed in vain before.

    ``outcome`` is the status of the turn, whose exit code the process ends with: ``NOT_BETTER`` where
    the verdict says ``PASS``, and the refusal where nothing was judged. ``decision`` is null then.
    """
    return _plain(
        {
            "schema_version": SCHEMA_VERSION,
            "outcome": {
                "status": outcome.name,
                "exit_code": outcome.exit_code,
                "meaning": outcome.meaning,
                "decision": decision,
                "reason": reason if verdict is None else reason_beyond(verdict, reason),
                "id": id,
                "commit": commit,
                "incumbent": None if incumbent is None else _incumbent(incumbent),
            },
            "verdict": None if verdict is None else _verdict(verdict, refuted),
        }
    )


def dumps(document: Mapping[str, Any]) -> str:
    """The document as text: ASCII, so that no terminal takes a name in it for a command."""
    return json.dumps(document, indent=2, allow_nan=False)


def _verdict(verdict: Verdict, refuted: Mapping[Key, Refuted] | None) -> dict[str, Any]:
    evaluator = {"evaluator": verdict.conditions.evaluator, "kind": kind_of(verdict.conditions.evaluator)}
    return {
        "status": verdict.status.name,
        "reason": verdict.reason,
        "hint": hint(verdict.status, verdict.reason),
        "kernel": {"path": verdict.kernel, "name": verdict.kernel_name, "source_sha256": verdict.source_sha256},
        "conditions": asdict(verdict.conditions) | {"kind": evaluator["kind"]},
        "score": None if verdict.score is None else evaluator | asdict(verdict.score),
        "steps": [_step(verdict, step) for step in verdict.steps],
        "footprint": None if verdict.footprint is None else asdict(verdict.footprint),
        "copies": [asdict(copy) for copy in verdict.copies],
        "parity": None if verdict.parity is None else asdict(verdict.parity),
        "timeline": None if verdict.timeline is None else _timeline(verdict.timeline),
        "samples": None if verdict.samples is None else _samples(verdict.samples),
        "paired": None if verdict.paired is None else asdict(verdict.paired),
        "claims": [asdict(claim) for claim in verdict.claims],
        "losses": [] if verdict.timeline is None else losses_in_words(verdict.timeline, refuted),
        "notes": notes(verdict),
        "remembered": None if verdict.remembered is None else asdict(verdict.remembered),
        "seconds": verdict.seconds,
    }


def _step(verdict: Verdict, step: Step) -> dict[str, Any]:
    return asdict(step) | {"status": step.status.name, "summary": summary_beyond(verdict, step)}


_OF_A_CHIP = (
    "chip_index", "cycles", "executed_bundles", "dma_wait_cycles", "ici_wait_cycles", "ici_bytes", "hbm_read_bytes",
    "hbm_write_bytes", "launch_cycles",
)  # fmt: skip


_APART = ("spans", "ops", "chips", "links", "not_modelled", "blame", "control")


def _timeline(timeline: Timeline) -> dict[str, Any]:
    """The totals; the spans themselves are in the trace."""
    spans = timeline.spans
    # Not asdict on the whole: it would copy tens of thousands of spans only to drop them.
    totals = {name: value for name, value in vars(timeline).items() if name not in _APART}
    return {
        **totals,
        "evaluator": f"{timeline.chip}-model",
        "kind": "modelled",
        "latency_ms": timeline.latency_ms,
        "ops": [asdict(op) | {"name": op.name or where(Code.TOP_LEVEL)} for op in timeline.ops],
        "span_count": len(spans),
        "chips": [{name: getattr(chip, name) for name in _OF_A_CHIP} for chip in timeline.chips],
        "links": [asdict(link) for link in timeline.links],
        "not_modelled": [_omission(omission) for omission in timeline.not_modelled],
        "blame": _blame(timeline.blame),
    }


def _omission(omission: Omission) -> dict[str, Any]:
    return {"kind": omission.value} if isinstance(omission, Unmodelled) else {"kind": omission.kind, **vars(omission)}


def _blame(blame: Blame) -> dict[str, Any]:
    return {
        "lines": [_line(line) for line in blame.lines],
        "regions": [vars(region) | {"lines": [_line(line) for line in region.lines]} for region in blame.regions],
        "steps": [vars(kind) for kind in blame.steps],
        "losses": [_loss(loss) for loss in blame.losses],
    }


def _line(line: LineCost) -> dict[str, Any]:
    number = line.place.line if isinstance(line.place, SourceLine) else 0
    return {"where": where(line.place), "line": number} | _numbers(line)


def _loss(loss: Loss) -> dict[str, Any]:
    """The numbers of a loss; its sentence is in the verdict's ``losses``, at the same index."""
    numbers: dict[str, Any] = {"kind": loss.kind.value} | _numbers(loss)
    if isinstance(loss, Stalls):
        numbers["units"] = [_numbers(stall) | {"where": where(stall.place)} for stall in loss.units]
    elif not isinstance(loss, Spills | IdleSteps | LinkWaits | MatrixBound | NothingLeft):
        numbers["where"] = where(loss.place)
    if isinstance(loss, Waits | LinkWaits):
        numbers["cause"] = loss.cause.value
    return numbers


def _numbers(value: LineCost | Loss | UnitStall) -> dict[str, Any]:
    return {name: item for name, item in vars(value).items() if name != "place"}


def _samples(samples: Samples) -> dict[str, Any]:
    return asdict(samples) | {
        "kind": "measured",
        "clock": samples.clock,
        "latency_ms": samples.latency_ms,
        "calls": samples.calls,
    }


def _incumbent(row: Row) -> dict[str, Any]:
    return {
        "id": row.id,
        "commit": row.commit,
        "evaluator": row.evaluator,
        "kind": kind_of(row.evaluator),
        "score": number(row.score),
        "latency_ms": number(row.median_ms),
    }


def _plain(value: Any) -> Any:
    """Tuples as lists, mappings as dicts; a number that is not finite, which JSON lacks, as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
