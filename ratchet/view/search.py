"""A search, or several candidates, as a table and as a JSON document: the fastest first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.process.boot import home
from ratchet.values import Point
from ratchet.view.columns import columns
from ratchet.view.text import clean, clean_lines
from ratchet.view.words import fixed, size, time_change, times

RUNNERS_UP = 5
_LIMIT = 76


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One candidate that was judged."""

    name: str
    point: Point
    """Empty where it is a file."""
    latency_ms: float | None
    vmem_bytes: int | None
    status: str
    id: str
    kept: bool
    reason: str


def ranked(shown: Sequence[Shown]) -> list[Shown]:
    """The fastest first, then what was refused."""
    return sorted(shown, key=lambda one: math.inf if one.latency_ms is None else one.latency_ms)


def candidates_table(shown: Sequence[Shown], *, most: int | None = None) -> str:
    """One line each: latency, VMEM, what became of it, its row. ``most`` leaves out what comes after so many."""
    lines = [["", "ms", "VMEM", "decision", "row", "why"]]
    lines += [
        [
            clean(one.name),
            "-" if one.latency_ms is None else fixed(one.latency_ms),
            "-" if one.vmem_bytes is None else size(one.vmem_bytes),
            "kept" if one.kept else one.status,
            one.id,
            _short(one.reason),
        ]
        for one in ranked(shown)[:most]
    ]
    return "\n".join(columns(lines, numbers=False))


def search_text(
    shown: Sequence[Shown], *, ending: str, before_ms: float, left_out: int, seconds: float, new: int, how: str
) -> str:
    """The best point and the runners-up, what was refused, and why the search ended. ``how``: modelled or measured."""
    lines = [candidates_table(shown, most=RUNNERS_UP + 1)]
    refused: dict[str, int] = {}
    for one in shown:
        if one.latency_ms is None:
            refused[one.status] = refused.get(one.status, 0) + 1
    said = ", ".join(f"{count} {status}" for status, count in sorted(refused.items()))
    lines.append(f"{len(shown)} trials, {new} judged now, in {seconds:.0f} s; {ending}")
    if said:
        lines.append(f"refused: {said}")
    if left_out:
        lines.append(f"{left_out} points left out: they need no less VMEM than one that overflowed")
    top = ranked(shown)[0] if shown else None
    if top is not None and top.latency_ms is not None:
        faster = before_ms / top.latency_ms
        gain = f"{times(faster)} as fast as {fixed(before_ms, 4)} ms where it began: time {time_change(faster)}"
        lines.append(f"best {fixed(top.latency_ms, 4)} ms {how}, {gain}")
        if not top.kept:
            lines.append(f"not kept by this search: `{home.PROGRAM} show {top.id}` says why")
    return "\n".join(lines)


def candidates_document(shown: Sequence[Shown], **others: Any) -> dict[str, Any]:
    """The same as JSON: latencies in ms, sizes in bytes, null where there is none."""
    return {
        "kind": "modelled",
        **others,
        "trials": [
            {
                "name": one.name,
                "point": dict(one.point),
                "latency_ms": one.latency_ms,
                "vmem_bytes": one.vmem_bytes,
                "status": one.status,
                "kept": one.kept,
                "id": one.id,
                "reason": one.reason,
            }
            for one in ranked(shown)
        ],
    }


def _short(reason: str) -> str:
    first = (clean_lines(reason) or [""])[0]
    return first if len(first) <= _LIMIT else first[: _LIMIT - 1] + "…"
