"""``ratchet diff A B``"""

from __future__ import annotations

import argparse
from pathlib import Path

from ratchet.loop import recorded
from ratchet.loop.difference import difference
from ratchet.values import Row, Timeline
from ratchet.values.difference import Side
from ratchet.values.status import Status
from ratchet.view.difference import difference_document, difference_text
from ratchet.view.document import dumps
from ratchet.wiring import DUMPS, TIMELINE


def command(options: argparse.Namespace, *, root: Path, kernel: Path) -> int:
    """Print two experiments side by side, from what is recorded of them; nothing is judged."""
    one, other = (
        _side(root, recorded.experiment(root, name, kernel=kernel)) for name in (options.before, options.after)
    )
    differs = difference(one, other)
    if options.json:
        print(dumps(difference_document(differs)))
    else:
        print(difference_text(differs))
    return Status.PASS.exit_code


def _side(root: Path, row: Row) -> Side:
    named = Path(row.id).name == row.id  # a ledger is text that anyone can edit
    timeline = recorded.from_file(Timeline, root / DUMPS / row.id / TIMELINE) if named else None
    return Side(row=row, timeline=timeline, source=recorded.source(root, row))
