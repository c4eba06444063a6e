"""``./ratchet.sh advise [FILE]``"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ratchet.advise.advice import Advice
from ratchet.advise.advise import Attempt, advise
from ratchet.commands.options import PROGRAM
from ratchet.kernelfile.syntax import File
from ratchet.loop import log, recorded
from ratchet.loop.decide import conditions_of, scored
from ratchet.loop.history import History
from ratchet.loop.subject import Subject
from ratchet.values import Decision, Row, Timeline
from ratchet.values.status import Refusal, Status
from ratchet.view.advise import advice_document, advice_text, patch, title
from ratchet.view.document import dumps
from ratchet.wiring import DUMPS, TIMELINE

_ROWS = 200
"""The newest of the ledger, in which advice that was followed is looked for."""


def command(options: argparse.Namespace, *, root: Path, kernel: Path) -> int:
    """Print what to try next, or make one of the edits; judges nothing."""
    if not kernel.is_file():
        raise Refusal(Status.NOT_FOUND, f"{options.kernel} is no file, wanted a kernel file")
    history = History(root)
    name = Subject.of(history, kernel).kernel
    source = kernel.read_bytes()
    file = File.of(source, kernel.name)
    row, timeline = _incumbent(history, name, source)
    attempts = tuple(_attempts(history, name, row))
    advice = advise(file, timeline, attempts)
    if wanted := options.apply or options.patch:
        if not advice:
            raise Refusal(Status.NOT_FOUND, f"there is no advice for {name}: every edit that it knows was tried")
        if wanted > len(advice):
            raise Refusal(Status.USAGE, f"there is no advice {wanted} for {name}, wanted 1 to {len(advice)}")
        advice = (advice[wanted - 1],)
    if options.apply:
        kernel.write_bytes(advice[0].rewrite.after)
    _print(options, advice, row, source, name)
    return Status.PASS.exit_code


def _print(options: argparse.Namespace, advice: Sequence[Advice], row: Row, source: bytes, name: str) -> None:
    if options.json:
        print(dumps(advice_document(advice, row, before=source, kernel=name, most=options.most)))
    elif options.patch:
        print(patch(advice[0], source, name), end="")
    elif options.apply:
        print(f"{title(advice[0])}: written into {name}; judge it: {PROGRAM} --kernel {shlex.quote(name)} 'advise: …'")
    else:
        print(
            advice_text(
                advice, row, kernel=name, most=options.most, again=f"{PROGRAM} advise {shlex.quote(name)} --apply 1"
            )
        )


def _incumbent(history: History, name: str, source: bytes) -> tuple[Row, Timeline]:
    """The newest row of these very bytes, and their modelled run.

    Raises:
        Refusal: NOT_FOUND where they were not judged, or the run is not on this disk.
    """
    blob = history.objects.name(source, name)
    rows = [row for row in log.rows(history.root) if row.kernel == name and row.kernel_blob == blob and scored(row)]
    if not rows:
        todo = f'judge it first, {PROGRAM} --kernel {shlex.quote(name)} "baseline"'
        raise Refusal(Status.NOT_FOUND, f"{name} as it is has no row with a score: {todo}")
    for row in reversed(rows):
        named = Path(row.id).name == row.id  # a ledger is text that anyone can edit
        timeline = recorded.from_file(Timeline, history.root / DUMPS / row.id / TIMELINE) if named else None
        if timeline is not None:
            return row, timeline
    todo = f'judge it again, {PROGRAM} --kernel {shlex.quote(name)} --fresh "baseline"'
    raise Refusal(Status.NOT_FOUND, f"the modelled run of {name} is not on this disk any more: {todo}")


def _attempts(history: History, name: str, like: Row) -> Iterator[Attempt]:
    """The newest experiments of the ledger, oldest first, as far as git has their bytes."""
    rows = log.rows(history.root)
    latency = {(row.kernel, row.kernel_blob, conditions_of(row)): float(row.median_ms) for row in rows if row.median_ms}
    rows = rows[-_ROWS:]
    missing = history.objects.unresolved([one for row in rows for one in (row.parent, row.kernel_blob)])
    here = [row for row in rows if not missing & {row.parent, row.kernel_blob}]
    parents = [(row, history.objects.entry(row.parent, row.kernel)) for row in here]
    pairs = [(row, before.blob) for row, before in parents if before is not None]
    blobs = sorted({blob for row, before in pairs for blob in (before, row.kernel_blob)})
    sources = dict(zip(blobs, history.objects.blobs(blobs), strict=True))
    for row, before in pairs:
        old, new = (latency.get((row.kernel, blob, conditions_of(row))) for blob in (before, row.kernel_blob))
        yield Attempt(
            id=row.id,
            before=sources[before],
            after=sources[row.kernel_blob],
            status=row.status,
            kept=row.decision == Decision.KEPT,
            gain=1 - new / old if old and new else None,
            here=row.kernel == name and conditions_of(row) == conditions_of(like),
        )
