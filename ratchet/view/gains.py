"""What each experiment of the ledger gained over the kernel that was kept before it. Pure.

Modelled latencies are compared with the kept one before, where both were judged under the same conditions. Of measured
ones the speed-up is what launches beside each other gave: two medians of different days decide nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.loop.decide import conditions_of
from ratchet.loop.rows import repeats
from ratchet.values import Conditions, Decision, Row
from ratchet.view.words import kind_of, number

KEPT = (Decision.KEPT, Decision.BASELINE)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A row beside the kept one that it is compared with."""

    row: Row
    before: Row | None
    """The kept one before it under the same conditions."""
    latency_ms: float | None
    faster: float | None
    """The time before over the time now: 2 is twice as fast, below 1 is slower."""
    repeats: str = ""
    """Id of the row whose result this one only repeats; ``""`` where it says something new."""
    again: int = 0
    """How many later rows only repeat this one."""

    @property
    def kind(self) -> str:
        """``modelled`` or ``measured``; ``""`` where nothing says."""
        return kind_of(self.row.evaluator) if self.row.evaluator else ""

    @property
    def kept(self) -> bool:
        return self.row.decision in KEPT

    @property
    def time_change_pct(self) -> float | None:
        """By how many per cent the time grew; negative where it shrank."""
        return None if self.faster is None else 100 * (1 / self.faster - 1)


def entries(rows: Sequence[Row]) -> tuple[Entry, ...]:
    """An entry for each row, in order."""
    latest: dict[tuple[str, Conditions], Row] = {}
    repeated = repeats(rows)
    again = Counter(repeated.values())
    made = []
    for row in rows:
        conditions = (row.kernel, conditions_of(row))
        before = latest.get(conditions)
        latency = _positive(row.median_ms)
        made.append(
            Entry(
                row=row,
                before=before,
                latency_ms=latency,
                faster=_faster(row, before, latency),
                repeats=repeated.get(row.id, ""),
                again=again[row.id],
            )
        )
        if row.decision in KEPT and latency is not None:
            latest[conditions] = row
    return tuple(made)


def by_evaluator(made: Iterable[Entry]) -> Mapping[tuple[str, str], list[Entry]]:
    """Entries by kernel file and evaluator, whose latencies are never compared; without those that only repeat."""
    found: dict[tuple[str, str], list[Entry]] = {}
    for entry in made:
        if not entry.repeats:
            found.setdefault((entry.row.kernel, entry.row.evaluator), []).append(entry)
    return found


def entry_document(entry: Entry) -> dict[str, Any]:
    """A row as JSON: every column, numbers as numbers, null where there is none; and what it gained."""
    cells: dict[str, Any] = dict(vars(entry.row))
    for name in _NUMBERS:
        cells[name] = number(cells[name])
    for name in _COUNTS:
        value = number(cells[name])
        cells[name] = None if value is None else int(value)
    return {
        **cells,
        "kind": entry.kind,
        "repeats": entry.repeats or None,
        "judged_again": entry.again,
        "against": entry.before.id if entry.before and entry.faster is not None else None,
        "times_faster": entry.faster,
        "time_change_pct": entry.time_change_pct,
    }


_NUMBERS = (
    "score median_ms util_pct tflops bw_util_pct wait_ms band_low_ms band_high_ms modelled_ms speedup speedup_low "
    "speedup_high seconds"
).split()
_COUNTS = "vmem_bytes spills launches samples".split()


def _faster(row: Row, before: Row | None, latency: float | None) -> float | None:
    if row.evaluator and kind_of(row.evaluator) == "measured":
        return _positive(row.speedup)
    earlier = _positive(before.median_ms) if before else None
    return earlier / latency if earlier and latency else None


def _positive(text: str) -> float | None:
    value = number(text)
    return value if value is not None and value > 0 else None
