"""Lines of experiments beside each other, and what came of merging two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ratchet.view.text import clean, clean_lines, columns, fixed, kind_of


@dataclass(frozen=True, kw_only=True)
class Winner:
    """A kernel of the other line that was judged again here."""

    kernel: str
    decision: str
    reason: str
    id: str


def merge_text(name: str, *, came: int, only_ahead: bool, row: str, winners: Sequence[Winner]) -> str:
    """What came, how the ledgers became one, and what became of the other line's kernels."""
    name = clean(name)
    rows = "1 row" if came == 1 else f"{came} rows"
    if not came:
        lines = [f"nothing to merge: every row of {name} is here"]
    elif only_ahead:
        lines = [f"{rows} came: {name} was only ahead, and this line is now the same"]
    else:
        lines = [f"{rows} came of {name}; merge row {clean(row)} joins the two lines"]
    lines += [f"{clean(one.kernel)}: {one.decision}, {_first(one.reason)} (row {one.id})" for one in winners]
    return "\n".join(lines)


def merge_document(name: str, *, came: int, only_ahead: bool, row: str, winners: Sequence[Winner]) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "kind": "merge",
        "of": name,
        "rows": came,
        "only_ahead": only_ahead,
        "merge_row": row or None,
        "judged": [asdict(one) for one in winners],
    }


@dataclass(frozen=True, kw_only=True)
class Line:
    """One kernel on one branch."""

    branch: str
    is_head: bool
    kernel: str
    evaluator: str
    rows: int
    kept: int
    best_ms: float | None
    best_score: float | None
    best_id: str
    fork: str
    """Id of the last row that it has in common with HEAD's line; ``""`` where there is none, or it is HEAD's."""
    since_fork: int
    """Rows after that."""


def branches_table(lines: Sequence[Line]) -> str:
    """One line each: best score and latency, how many rows, and where it parted from HEAD's."""
    if not lines:
        return "No branch has a row yet."
    cells = [["", "branch", "kernel", "best", "ms", "", "rows", "kept", "row of it", "parted after", "since"]]
    cells += [
        [
            "*" if one.is_head else "",
            clean(one.branch),
            clean(one.kernel),
            "-" if one.best_score is None else fixed(one.best_score),
            "-" if one.best_ms is None else fixed(one.best_ms),
            kind_of(one.evaluator) if one.evaluator else "",
            str(one.rows),
            str(one.kept),
            clean(one.best_id),
            "" if one.is_head else clean(one.fork) or "the beginning",
            "" if one.is_head else str(one.since_fork),
        ]
        for one in lines
    ]
    return "\n".join([*columns(cells), "* what HEAD is on; the best of each, under the conditions of its newest score"])


def branches_document(lines: Sequence[Line]) -> dict[str, Any]:
    """The same as JSON: latencies in ms, null where there is none."""
    return {
        "kind": "branches",
        "lines": [asdict(one) | {"latency": kind_of(one.evaluator) if one.evaluator else None} for one in lines],
    }


def _first(reason: str) -> str:
    return (clean_lines(reason) or [""])[0]
