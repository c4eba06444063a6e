"""``advise`` and ``brief``: what to try next, and what the next experiment has to know."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ratchet.advise.advice import Advice
from ratchet.advise.advise import Attempt, advise
from ratchet.commands.history import timeline_of
from ratchet.commands.options import PROGRAM, count_option, json_option, kernel_file
from ratchet.kernelfile import knobs
from ratchet.kernelfile.mutation import mutation
from ratchet.kernelfile.syntax import File
from ratchet.loop import log
from ratchet.loop.decide import conditions_of, scored
from ratchet.loop.history import History
from ratchet.loop.rows import newest
from ratchet.loop.subject import Subject
from ratchet.process import paths
from ratchet.search.brief import RECENT, brief
from ratchet.values import Decision, Row, Timeline
from ratchet.values.brief import Suggestion, Task
from ratchet.values.status import Refusal, Status
from ratchet.view.advise import advice_document, advice_text, patch, title
from ratchet.view.brief import document_within, text_within
from ratchet.view.document import dumps
from ratchet.wiring import refuted

_SUGGESTED = 3
_ROWS = 200
"""The newest of the ledger, in which advice that was followed is looked for."""


def advise_options(parser: argparse.ArgumentParser) -> None:
    """A kernel file, and what to do with the advice."""
    kernel_file(parser)
    what = parser.add_mutually_exclusive_group()
    count_option(what, "--apply", "make the edit of advice N in the file")
    count_option(what, "--patch", "print the edit of advice N as a patch")
    count_option(parser, "--most", "show at most so many", 5)
    json_option(parser, "print it as one JSON document, with every edit as a patch")


def advise_command(options: argparse.Namespace, *, root: Path, kernel: Path) -> int:
    """Print what to try next, or make one of the edits; judges nothing."""
    if not paths.is_file(kernel):
        raise Refusal(Status.NOT_FOUND, f"{options.kernel} is no file, wanted a kernel file")
    history = History(root)
    name = Subject.of(history, kernel).kernel
    source = paths.read(kernel)
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
        paths.write(kernel, advice[0].rewrite.after)
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
        if (timeline := timeline_of(history.root, row)) is not None:
            return row, timeline
    todo = f'judge it again, {PROGRAM} --kernel {shlex.quote(name)} --fresh "baseline"'
    raise Refusal(Status.NOT_FOUND, f"the modelled run of {name} is not on this disk any more: {todo}")


def _attempts(history: History, name: str, like: Row) -> Iterator[Attempt]:
    """The newest experiments of the ledger, oldest first, those whose bytes git has."""
    rows = log.rows(history.root)
    latency = {(row.kernel, row.kernel_blob, conditions_of(row)): float(row.median_ms) for row in rows if row.median_ms}
    pairs = _with_parents(history, rows[-_ROWS:])
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


def _with_parents(history: History, rows: Sequence[Row]) -> list[tuple[Row, str]]:
    """Those experiments whose bytes git has, each with the blob that its kernel file was before."""
    missing = history.objects.unresolved([one for row in rows for one in (row.parent, row.kernel_blob)])
    here = [row for row in rows if not missing & {row.parent, row.kernel_blob}]
    parents = [(row, history.objects.entry(row.parent, row.kernel)) for row in here]
    return [(row, before.blob) for row, before in parents if before is not None]


# --- brief ---


def brief_options(parser: argparse.ArgumentParser) -> None:
    """A kernel file, and how much may be said."""
    kernel_file(parser)
    count_option(parser, "--tokens", "at most so many", 1500)
    json_option(parser, "print it as one JSON document")


def brief_command(options: argparse.Namespace, *, root: Path, kernel: Path) -> int:
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
        timeline=timeline_of(root, incumbent) if incumbent else None,
        refuted=refuted(root, incumbent) if incumbent else {},
        rows=rows,
        parts=list(_changed_parts(history, rows)),
        suggestions=list(_suggested(history, name, source, incumbent)),
    )
    print(dumps(document_within(made, options.tokens)) if options.json else text_within(made, options.tokens))
    return Status.PASS.exit_code


def _suggested(history: History, name: str, source: bytes, incumbent: Row | None) -> Iterator[Suggestion]:
    """What ``advise`` has first; nothing where the modelled run is not on this disk."""
    timeline = timeline_of(history.root, incumbent) if incumbent else None
    if incumbent is None or timeline is None:
        return
    known = advise(File.of(source, Path(name).name), timeline, tuple(_attempts(history, name, incumbent)))
    for number, one in enumerate(known[:_SUGGESTED], 1):
        yield Suggestion(number=number, title=title(one), predicted_ms=one.latency_ms, confidence=one.confidence)


def _changed_parts(history: History, rows: Sequence[Row]) -> Iterator[frozenset[str]]:
    """What the newest reverted experiments changed, of those whose bytes git has."""
    recent = [row for row in reversed(rows) if row.decision == Decision.REVERTED][:RECENT]
    for row, before in _with_parents(history, recent):
        try:
            change = mutation(history.objects.blob(before), history.objects.blob(row.kernel_blob), row.kernel)
        except Refusal:  # it was no Python
            continue
        yield frozenset(part.name for part in change.parts)
