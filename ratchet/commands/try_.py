"""``./ratchet.sh try A.py B.py …``"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ratchet.commands.branches import on_line
from ratchet.commands.search import asked_for
from ratchet.kernelfile.mutation import mutation
from ratchet.loop.placed import committed
from ratchet.loop.workspace import Interrupts
from ratchet.search.candidates import Candidate, baseline, bench
from ratchet.search.remote import judges
from ratchet.search.run import result_of
from ratchet.values import Decision, Row
from ratchet.values.status import Refusal, Status
from ratchet.view.document import dumps
from ratchet.view.points import Shown, candidates_document, candidates_table
from ratchet.wiring import JudgeFunction


def command(
    options: argparse.Namespace, *, root: Path, kernel: Path, function: JudgeFunction, say: Callable[[str], None]
) -> int:
    """Judge several versions of one kernel from one parent; the best is kept, and each has a row."""
    files = [_read(file) for file in options.files]
    root, kernel = on_line(root, kernel, options.branch, say)
    asked = asked_for(options, root, function)
    with Interrupts().installed(), judges(asked, options.cluster, say=say) as (judge, away):
        name, parent = committed(root, Path(os.path.relpath(kernel, root)), wait_s=options.wait, progress=say)
        candidates = [_candidate(path, text, parent, options) for path, text in files]
        beside = _inside(root, [path for path, _ in files])
        baseline(judge, Path(name), wait_s=options.wait, say=say, beside=beside)
        with bench(judge, name, one_file=False, beside=beside, wait_s=options.wait, say=say, cluster=away) as judged:
            rows = judged.rows(candidates)
    shown = [shown_of(path.name, row) for (path, _), row in zip(files, rows, strict=True)]
    if options.json:
        print(dumps(candidates_document(shown, kernel=name)))
    else:
        print(candidates_table(shown))
    return (Status.PASS if any(one.kept for one in shown) else Status.NOT_BETTER).exit_code


def _read(file: Path) -> tuple[Path, bytes]:
    try:
        return file, file.read_bytes()
    except OSError as error:
        raise Refusal(Status.NOT_FOUND, f"{file} cannot be read: {error.strerror}; wanted a kernel file") from None


def _candidate(path: Path, text: bytes, parent: bytes, options: argparse.Namespace) -> Candidate:
    """Raises:
    Refusal: ``USAGE`` where it changes several things at once and that was not asked for, before anything is judged.
    """
    try:
        change = mutation(parent, text, path.name)
    except Refusal:  # no Python: its row says so
        return Candidate(text=text, message=f"try: {path.name}")
    if change.compound and not options.compound:
        message = f"{path.name} changes {change}: try each on its own, or --compound to try them together on purpose"
        raise Refusal(Status.USAGE, message)
    return Candidate(text=text, message=f"try: {path.name}\n\nChanges {change}.")


def _inside(root: Path, files: Sequence[Path]) -> tuple[str, ...]:
    """Those of the files that are in the repository, relative to its top."""
    paths = [Path(os.path.realpath(file)) for file in files]
    return tuple(path.relative_to(root).as_posix() for path in paths if path.is_relative_to(root))


def shown_of(name: str, row: Row) -> Shown:
    """A candidate as the table shows it."""
    one = result_of({}, row)
    return Shown(
        name=name,
        point={},
        latency_ms=one.latency_ms,
        vmem_bytes=one.vmem_bytes,
        status=row.status,
        id=row.id,
        kept=row.decision == Decision.KEPT,
        reason=row.reason,
    )
