"""``log``, ``top``, ``status``, ``show``, ``diff``, ``verify``, ``rebuild``, ``fidelity``: what the ledger holds."""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ratchet.commands.options import count_option, json_option, kernel_file, kernel_option
from ratchet.exam.judge import evidence
from ratchet.exam.judge.seal import seal
from ratchet.loop import journal, log, placed, recorded
from ratchet.loop.difference import difference
from ratchet.loop.frozen import frozen
from ratchet.loop.history import History
from ratchet.loop.ledger import MERGED, NAME
from ratchet.loop.series import PROOFS
from ratchet.loop.workspace import under_way
from ratchet.process import paths
from ratchet.process.boot import home
from ratchet.search import progress
from ratchet.values import Row, Timeline
from ratchet.values.difference import Side
from ratchet.values.status import Refusal, Status
from ratchet.view.console import coloured, terminal_width
from ratchet.view.difference import difference_document, difference_text
from ratchet.view.document import dumps
from ratchet.view.ledger import (
    by_evaluator,
    entries,
    entry_document,
    fidelity_table,
    gained,
    log_table,
    origins_text,
    series_text,
    top_table,
)
from ratchet.view.status import State, show, status_document, status_text
from ratchet.view.text import clean
from ratchet.wiring import BLAME, DUMPS, TIMELINE

Value = TypeVar("Value")

TICK_S = 0.5
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"
_HEADER_LINES = 2
_LISTED = 5


def log_options(parser: argparse.ArgumentParser) -> None:
    """Whose rows, and how they are shown."""
    kernel_file(parser, "only its rows; default: all")
    _shown(parser)


def log_command(options: argparse.Namespace, *, root: Path, only: Path | None) -> int:
    """Print all rows; with ``--watch`` new ones as they come."""
    return _printed(
        options,
        lambda: _of_kernel(root, only),
        lambda rows: log_table(rows, width=terminal_width(), colour=coloured()),
        lambda rows: {"rows": [entry_document(entry) for entry in entries(rows)]},
        root=root,
    )


def top_options(parser: argparse.ArgumentParser) -> None:
    """Whose rows, and how many."""
    kernel_file(parser, "only its rows; default: all")
    count_option(parser, "--most", "at most so many", 10)
    _shown(parser)


def top_command(options: argparse.Namespace, *, root: Path, only: Path | None) -> int:
    """Print the experiments that gained most."""

    def document(rows: Sequence[Row]) -> dict[str, Any]:
        series = by_evaluator(entries(rows)).values()
        best = [entry_document(one) for of_one in series for one in gained(of_one)[: options.most]]
        return {"top": best}

    return _printed(
        options,
        lambda: _of_kernel(root, only),
        lambda rows: top_table(rows, most=options.most, width=terminal_width(), colour=coloured()),
        document,
        root=root,
    )


def status_options(parser: argparse.ArgumentParser) -> None:
    """The kernel file that is judged where none is named."""
    kernel_file(parser)
    _shown(parser)


def status_command(options: argparse.Namespace, *, root: Path, kernel: Path) -> int:
    """Print where the repository's experiments are."""
    history = History(root)

    def state() -> State:
        head, rows = history.checks.head(), log.rows(root)
        known = {kernel.relative_to(root).as_posix()} if kernel.is_relative_to(root) else set()
        kernels = {*known, *(row.kernel for row in rows if row.decision != MERGED)}
        candidate = placed.candidate(history)
        files = [path for path in kernels - {candidate} if _is_file(root, path)]
        return State(
            branch=head.branch,
            commit=head.commit,
            edited=tuple(history.checks.unlike_head(files)),
            candidate=candidate,
            running=under_way(history),
            searching=progress.under_way(root),
            unfinished=journal.unfinished(history) or "",
            rows=rows,
        )

    return _printed(options, state, lambda now: status_text(now, width=terminal_width()), status_document, root=root)


def _shown(parser: argparse.ArgumentParser) -> None:
    json_option(parser)
    parser.add_argument("--watch", action="store_true", help="again after every experiment, until interrupted")


def show_options(parser: argparse.ArgumentParser) -> None:
    """An experiment."""
    json_option(parser)
    parser.add_argument("id", help="an experiment's id or commit, or the beginning of it")


def show_command(options: argparse.Namespace, *, root: Path) -> int:
    """Print one row in full."""
    row = log.find(root, options.id)
    entry = next(one for one in entries(log.rows(root)) if one.row == row)
    blame = f"{DUMPS}/{row.id}/{BLAME}"
    blame = blame if _names_a_folder(row) and paths.is_file(root / blame) else ""
    document = {**entry_document(entry), "blame": blame or None}
    print(dumps(document) if options.json else show(entry, width=terminal_width(), blame=blame))
    return Status.PASS.exit_code


def diff_options(parser: argparse.ArgumentParser) -> None:
    """Two experiments."""
    which = "an experiment's id or commit, HEAD, or a kernel file that was judged as it is"
    parser.add_argument("before", metavar="A", help=which)
    parser.add_argument("after", metavar="B", help="the same")
    kernel_option(parser, "whose HEAD; default: kernel.py")
    json_option(parser)


def diff_command(options: argparse.Namespace, *, root: Path, kernel: Path) -> int:
    """Print two experiments side by side, from what is recorded of them; nothing is judged."""
    rows = [recorded.experiment(root, name, kernel=kernel) for name in (options.before, options.after)]
    sides = [Side(row=row, timeline=timeline_of(root, row), source=recorded.source(root, row)) for row in rows]
    differs = difference(*sides)
    print(dumps(difference_document(differs)) if options.json else difference_text(differs))
    return Status.PASS.exit_code


def timeline_of(root: Path, row: Row) -> Timeline | None:
    """The modelled run of an experiment, without spans; None where it is not on this disk."""
    return recorded.from_file(Timeline, root / DUMPS / row.id / TIMELINE) if _names_a_folder(row) else None


def _names_a_folder(row: Row) -> bool:
    """Whether a row's id is one folder's name: a ledger is text that anyone can edit."""
    return Path(row.id).name == row.id


def verify_command(*, root: Path) -> int:
    """Print what of ledger and git does not agree."""

    def digest(name: str) -> str:
        try:
            return evidence.digest(root, name)
        except ValueError:  # an id of a row that was not written here
            return ""

    findings = log.verify(root, evidence=digest)
    for finding in findings:
        print(f"{'BROKEN' if finding.broken else 'note'}: {clean(finding.text)}")
    if any(finding.broken for finding in findings):
        return Status.LEDGER_BROKEN.exit_code
    print(f"{len(log.rows(root))} rows: the chain is whole and every commit that should be here resolves")
    for one in frozen(log.rows(root)):
        print(clean(one.said))
    print(origins_text(log.verify_origins(root)))
    print(series_text(seal(home.judge_root(root)), PROOFS))
    return Status.PASS.exit_code


def rebuild_command(*, root: Path) -> int:
    """Write the ledger again, and say from what."""
    built = log.rebuild(root)
    print(f"results.tsv has {built.rows} rows, {built.from_head} of them from HEAD and the others from refs")
    if built.replaced:
        print(f"what was there before is kept as {built.replaced}")
    if built.left_out:
        print(f"left out, because they do not follow HEAD's last row: {', '.join(built.left_out)}")
    for note in built.notes:
        print(clean(note))
    return Status.PASS.exit_code


def fidelity_command(*, root: Path) -> int:
    """Print measured over modelled latency."""
    from ratchet.loop import table  # pandas takes a second to import, which `log` need not wait for

    print(fidelity_table(table.fidelities(table.read(root / NAME))))
    return Status.PASS.exit_code


def _of_kernel(root: Path, kernel: Path | None) -> tuple[Row, ...]:
    """The rows of one kernel file, or all.

    Raises:
      Refusal: NOT_FOUND for a file that is neither there nor in the ledger.
    """
    rows = log.rows(root)
    if kernel is None:
        return rows
    own = tuple(row for row in rows if root / row.kernel == kernel)
    if not own and not paths.is_file(kernel):
        known = sorted({row.kernel for row in rows if row.decision != MERGED})
        listed = ", ".join(known[:_LISTED]) + (f" and {len(known) - _LISTED} more" if len(known) > _LISTED else "")
        message = f"{os.path.relpath(kernel)} is no file, and {NAME} has no row of it"
        raise Refusal(Status.NOT_FOUND, f"{message}; it has rows of {listed or 'no file yet'}")
    return own


def _is_file(root: Path, path: str) -> bool:
    """Whether a path of the ledger names a file below ``root``."""
    return not Path(path).is_absolute() and ".." not in Path(path).parts and paths.is_file(root / path)


def _printed(
    options: argparse.Namespace,
    read: Callable[[], Value],
    text: Callable[[Value], str],
    document: Callable[[Value], dict[str, Any]],
    *,
    root: Path,
) -> int:
    """Print what ``read`` returns; with ``--watch`` again after every change, until interrupted or not read."""
    if not options.watch:
        value = read()
        print(dumps(document(value)) if options.json else text(value))
        return Status.PASS.exit_code
    before: set[str] = set()
    try:
        for _ in changes(root / NAME):
            value = _settled(read)
            if options.json:  # one document a line
                print(json.dumps(document(value)), flush=True)
                continue
            lines = text(value).split("\n")
            if sys.stdout.isatty():
                print(_CLEAR + "\n".join(_newest(lines, shutil.get_terminal_size().lines)), flush=True)
            else:  # only what is new, whatever became of the columns' widths
                print(*(line for line in lines if " ".join(line.split()) not in before), sep="\n", flush=True)
            before |= {" ".join(line.split()) for line in lines}
    except KeyboardInterrupt:
        pass
    return Status.PASS.exit_code


def _newest(lines: Sequence[str], height: int) -> list[str]:
    """As many lines as fit: the first ones, and the newest."""
    room = max(_HEADER_LINES + 1, height - 1)
    return list(lines) if len(lines) <= room else [*lines[:_HEADER_LINES], *lines[_HEADER_LINES - room :]]


def _settled(read: Callable[[], Value]) -> Value:
    """What ``read`` returns; a second time where a row was being written."""
    try:
        return read()
    except Refusal as refusal:
        if refusal.status is not Status.LEDGER_BROKEN:
            raise
    time.sleep(TICK_S)
    return read()


def changes(path: Path) -> Iterator[None]:
    """Once now, and once after every change of a file, while somebody reads standard output."""
    seen: object = object()
    root, name = paths.of(path)
    while not _unread():
        try:
            stat = root.state(name)
        except OSError:
            stat = None
        now = (stat.st_mtime_ns, stat.st_size, stat.st_ino) if stat else None
        if now != seen:
            seen = now
            yield
        else:
            time.sleep(TICK_S)


def _unread() -> bool:
    """Whether nobody is left to read standard output."""
    if getattr(sys.stdout, "error", None) is not None:
        return True
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
    except (OSError, ValueError):
        return False
