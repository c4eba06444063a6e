"""Lines of experiments: all of them beside each other, and one that keeps to a branch of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ratchet.loop import ledger, log
from ratchet.loop.checks import Head
from ratchet.loop.history import History
from ratchet.loop.lineage import of_branch
from ratchet.loop.refs import ROWS, TIPS, tip_ref
from ratchet.values import Row
from ratchet.values.status import Refusal, Status

_HEADS = "refs/heads/"


@dataclass(frozen=True, kw_only=True)
class Line:
    """The rows of one branch."""

    branch: str
    is_head: bool
    rows: tuple[Row, ...]
    fork: Row | None
    """The last row that HEAD's line has as well; None where there is none."""
    since: int
    """Rows that HEAD's line does not have."""


def lines(root: Path) -> tuple[Line, ...]:
    """Every branch on which a row was written here, HEAD's first, as git has them.

    Raises:
        Refusal: LEDGER_BROKEN, and as ``Checks.head``.
    """
    history = History(root)
    head = history.checks.head()
    stored = history.refs.texts(ROWS).values()
    tips = set(history.refs.under(TIPS))
    branches = {name: commit for name, commit in history.refs.under(_HEADS).items()}
    wanted = [name for name in sorted(branches) if tip_ref(name).removeprefix(TIPS) in tips]
    here = head.branch.removeprefix(_HEADS)
    own = of_branch(history, head, stored)
    made = []
    for name in dict.fromkeys((here, *wanted)):
        text = own if name == here else of_branch(history, Head(branch=_HEADS + name, commit=branches[name]), stored)
        rows = tuple(map(ledger.parse_row, text[1:]))
        common = [row for row, line in zip(rows, text[1:], strict=True) if line in set(own)]
        made.append(
            Line(
                branch=name,
                is_head=name == here,
                rows=rows,
                fork=common[-1] if common else None,
                since=len(rows) - len(common),
            )
        )
    return tuple(made)


def line_of(root: Path, branch: str, *, folder: Path) -> Path:
    """The top of the work tree in which ``branch`` goes on; ``root`` itself where HEAD is on it.

    A branch that is new begins at HEAD, with the rows that are here by now. Its work tree is in ``folder``; what git
    knows of the branch outlives it.

    Raises:
        Refusal: USAGE for what is no branch's name; BUSY where another work tree is on it; LEDGER_BROKEN.
    """
    history = History(root)
    if not history.refs.is_branch_name(branch):
        raise Refusal(Status.USAGE, f"{branch!r:.80} is no name for a branch; wanted one such as wide-blocks")
    head = history.checks.ready()
    if head.branch == _HEADS + branch:
        return history.root
    path = folder / quote(branch, safe="")
    if _is_on(path, branch):
        return path
    log.load(history, head)
    rows = ledger.load_bytes(history.root / ledger.NAME)
    history.trees.remove(path)
    folder.mkdir(parents=True, exist_ok=True)
    tip, is_new = history.refs.tip(_HEADS + branch), history.refs.resolve(_HEADS + branch) is None
    history.trees.add_on(path, branch)
    if is_new and rows is not None:
        History(path).files.write(ledger.NAME, rows)
        last = ledger.lines_of(rows)[-1]
        if last != ledger.HEADER:
            history.refs.point({tip_ref(_HEADS + branch): history.objects.store(last.encode())})
    elif tip is not None:
        log.rebuild(path)
    return path


def _is_on(path: Path, branch: str) -> bool:
    try:
        return History(path).checks.head().branch == _HEADS + branch
    except Refusal:  # it is not there, or half made
        return False
