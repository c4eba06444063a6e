"""``ratchet log``, ``show``, ``top`` and ``status``: what was tried and where it led, once or as it happens."""

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

from ratchet.loop import journal, log
from ratchet.loop.history import History
from ratchet.loop.ledger import NAME
from ratchet.loop.workspace import under_way
from ratchet.values import Row
from ratchet.values.status import Refusal, Status
from ratchet.view.document import dumps
from ratchet.view.ledger import by_evaluator, entries, entry_document, gained, log_table, top_table
from ratchet.view.status import State, show, status_document, status_text
from ratchet.wiring import BLAME, DUMPS

Value = TypeVar("Value")

TICK_S = 0.5
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"
_HEADER_LINES = 2


def log_command(options: argparse.Namespace, *, root: Path, kernel: Path | None) -> int:
    """Print all rows; with ``--watch`` new ones as they come."""

    def text(rows: Sequence[Row]) -> str:
        return log_table(rows, width=terminal_width(), colour=coloured())

    def document(rows: Sequence[Row]) -> dict[str, Any]:
        return {"rows": [entry_document(entry) for entry in entries(rows)]}

    return _printed(options, lambda: of_kernel(log.rows(root), root, kernel), text, document, root=root)


def top_command(options: argparse.Namespace, *, root: Path, kernel: Path | None) -> int:
    """Print the experiments that gained most."""

    def text(rows: Sequence[Row]) -> str:
        return top_table(rows, most=options.most, width=terminal_width(), colour=coloured())

    def document(rows: Sequence[Row]) -> dict[str, Any]:
        series = by_evaluator(entries(rows)).values()
        best = [entry_document(one) for of_one in series for one in gained(of_one)[: options.most]]
        return {"top": best}

    return _printed(options, lambda: of_kernel(log.rows(root), root, kernel), text, document, root=root)


def status_command(options: argparse.Namespace, *, root: Path, kernel: Path) -> int:
    """Print where the repository's experiments are."""
    history = History(root)

    def state() -> State:
        head, rows = history.checks.head(), log.rows(root)
        known = {kernel.relative_to(root).as_posix()} if kernel.is_relative_to(root) else set()
        files = [path for path in {*known, *(row.kernel for row in rows)} if _is_file(root, path)]
        return State(
            branch=head.branch,
            commit=head.commit,
            edited=tuple(history.checks.unlike_head(files)),
            running=under_way(history),
            unfinished=journal.unfinished(history) or "",
            rows=rows,
        )

    def text(state: State) -> str:
        return status_text(state, width=terminal_width())

    return _printed(options, state, text, status_document, root=root)


def show_command(options: argparse.Namespace, *, root: Path) -> int:
    """Print one row in full."""
    row = log.find(root, options.id)
    entry = next(one for one in entries(log.rows(root)) if one.row == row)
    named = Path(row.id).name == row.id  # a ledger is text that anyone can edit
    blame = f"{DUMPS}/{row.id}/{BLAME}" if named and (root / DUMPS / row.id / BLAME).is_file() else ""
    if options.json:
        print(dumps({**entry_document(entry), "blame": blame or None}))
    else:
        print(show(entry, width=terminal_width(), blame=blame))
    return Status.PASS.exit_code


def of_kernel(rows: Sequence[Row], root: Path, kernel: Path | None) -> tuple[Row, ...]:
    """The rows of one kernel file, or all."""
    return tuple(row for row in rows if kernel is None or root / row.kernel == kernel)


def terminal_width() -> int | None:
    """Columns of the terminal that standard output is; None where it is none."""
    return max(20, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def coloured() -> bool:
    """Whether output may have colours: https://no-color.org."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _is_file(root: Path, path: str) -> bool:
    """Whether a path of the ledger names a file below ``root``."""
    return not Path(path).is_absolute() and ".." not in Path(path).parts and (root / path).is_file()


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
    """What ``read`` returns; once more where a row was being written meanwhile."""
    try:
        return read()
    except Refusal as refusal:
        if refusal.status is not Status.LEDGER_BROKEN:
            raise
    time.sleep(TICK_S)
    return read()


def changes(path: Path, *, tick_s: float = TICK_S) -> Iterator[None]:
    """Once now, and once after every change of a file, while somebody reads standard output."""
    seen: object = object()
    while not _unread():
        try:
            stat = path.stat()
            now: object = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        except OSError:
            now = None
        if now != seen:
            seen = now
            yield
        else:
            time.sleep(tick_s)


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
