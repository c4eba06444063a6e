"""``./ratchet.sh brief``"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ratchet.kernelfile import knobs
from ratchet.kernelfile.mutation import mutation
from ratchet.loop import log, recorded
from ratchet.loop.history import History
from ratchet.loop.rows import newest
from ratchet.search.brief import RECENT, brief
from ratchet.values import Decision, Row, Timeline
from ratchet.values.brief import Task
from ratchet.values.status import Refusal, Status
from ratchet.view.brief import document_within, text_within
from ratchet.view.document import dumps
from ratchet.wiring import DUMPS, TIMELINE, refuted


def command(options: argparse.Namespace, *, root: Path, kernel: Path) -> int:
    """Print what the next experiment has to know; changes nothing."""
    history = History(root)
    name = Path(os.path.relpath(os.path.realpath(kernel), os.path.realpath(root))).as_posix()
    entry = history.objects.entry(history.checks.head().commit, name)
    if entry is None:
        raise Refusal(Status.NOT_FOUND, f"HEAD has no {name}: commit it, or judge it once, first")
    source = history.objects.blob(entry.blob)
    rows = tuple(row for row in log.rows(root) if row.kernel == name)
    incumbent = newest(rows, kernel=name, blob=entry.blob)
    constants = knobs.values(source, kernel.name)
    made = brief(
        task=Task(
            kernel=name,
            name=str(constants.get("KERNEL_NAME", "")),
            description=str(constants.get("PROBLEM_DESCRIPTION", "")),
            digest=incumbent.problem if incumbent else "",
        ),
        source=source,
        incumbent=incumbent,
        timeline=recorded.from_file(Timeline, root / DUMPS / incumbent.id / TIMELINE) if incumbent else None,
        refuted=refuted(root, incumbent) if incumbent else {},
        rows=rows,
        parts=list(_parts(history, rows)),
    )
    if options.json:
        print(dumps(document_within(made, options.tokens)))
    else:
        print(text_within(made, options.tokens))
    return Status.PASS.exit_code


def _parts(history: History, rows: Sequence[Row]) -> Iterator[frozenset[str]]:
    """What the newest reverted experiments changed, as far as git has their bytes."""
    recent = [row for row in reversed(rows) if row.decision == Decision.REVERTED][:RECENT]
    missing = history.objects.unresolved([one for row in recent for one in (row.parent, row.kernel_blob)])
    for row in recent:
        if missing & {row.parent, row.kernel_blob}:
            continue
        before = history.objects.entry(row.parent, row.kernel)
        if before is None:
            continue
        try:
            change = mutation(history.objects.blob(before.blob), history.objects.blob(row.kernel_blob), row.kernel)
        except Refusal:  # it was no Python
            continue
        yield frozenset(part.name for part in change.parts)
