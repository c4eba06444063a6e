"""What became of each kernel of this repository, from its ledger, as a table: ``python -m tools.records``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from ratchet.loop import ledger
from ratchet.values import Decision, Row
from ratchet.values.status import Status
from tools.documents import ROOT

HEAD = ("kernel", "chip", "first, ms", "now, ms", "floor, ms", "reached", "experiments", "kept, by whom", "row")
_STANDS = (Decision.KEPT, Decision.BASELINE)


def records(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """A line for each kernel file that was improved: its first row for the chip, and the newest that stands.

    The floor is that of the roofline. A row is an engineer's unless its message says that advice or a search made it.
    """
    for kernel in dict.fromkeys(row.kernel for row in rows):
        own = [row for row in rows if row.kernel == kernel]
        standing = [row for row in own if row.status == Status.PASS.name and row.decision in _STANDS]
        if not standing:
            continue
        last = standing[-1]
        first = next(row for row in own if row.median_ms and row.chip == last.chip)
        tried = [row for row in own if row.decision in (Decision.KEPT, Decision.REVERTED) and row is not own[0]]
        kept = Counter(by(row) for row in tried if row.decision == Decision.KEPT)
        if not kept or not (ROOT / kernel).is_file():
            continue
        now, reached = float(last.median_ms), float(last.util_pct)
        yield (
            f"`{kernel}`",
            last.chip,
            f"{float(first.median_ms):.4f}",
            f"{now:.4f}",
            f"{now * reached / 100:.4f}",
            f"{reached:.1f} %",
            str(len(tried)),
            ", ".join(f"{count} {who}" for who, count in kept.most_common()),
            f"`{last.id}`",
        )


def by(row: Row) -> str:
    """Who made a version: an engineer, or a script that followed advice or bred edits."""
    return "script" if row.note.startswith(("advise:", "search:")) else "engineer"


def markdown() -> str:
    """The table of this repository."""
    rows = list(records(ledger.read(ROOT / ledger.NAME)))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *rows))


if __name__ == "__main__":
    sys.stdout.write(markdown() + "\n")
