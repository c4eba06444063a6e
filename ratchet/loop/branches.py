"""Lines of experiments beside each other, one that keeps to a branch of its own, and a branch for review."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ratchet.exam.problem.problem import lock_path
from ratchet.loop import ledger, log
from ratchet.loop.checks import Head
from ratchet.loop.history import History
from ratchet.loop.lineage import of_branch
from ratchet.loop.objects import Entry
from ratchet.loop.refs import ROWS, TIPS, tip_ref
from ratchet.values import Decision, Row
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
        Refusal: USAGE for what is no branch's name; BUSY where another work tree is on it, or something else is in its
            place; LEDGER_BROKEN.
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
    if history.tree.exists(path) and not history.trees.knows(path):
        raise Refusal(Status.BUSY, f"{path} is no work tree of this repository, and stays: move it away, and run again")
    history.trees.remove(path)
    history.tree.make_folder(folder)
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


_REMOTES = "refs/remotes/"
REVIEW = "review/"
"""Before a line's name: the branch that ``finalize`` makes."""


@dataclass(frozen=True, kw_only=True)
class Finalized:
    """A branch for review."""

    branch: str
    base: str
    """The commit it begins at."""
    commits: tuple[str, ...]
    """One for each kept experiment, oldest first."""
    left_out: int
    """Other commits of the line: merges, and what somebody committed by hand."""
    differs: tuple[str, ...]
    """Kernel files that the line changed by other commits too, so that the branch ends with other bytes."""


def finalize(root: Path, *, branch: str = "", base: str = "", name: str = "") -> Finalized:
    """Makes a branch of a line's kept experiments, kernel and problem lock alone; messages and authors stay.

    Args:
        root: Top folder of the repository.
        branch: The line; default: HEAD's.
        base: Where to begin; default: where the line parted from HEAD's, or HEAD's from its upstream or, without one,
            last from a branch of a remote; without remotes before its first kept experiment.
        name: The new branch; default: ``review/`` and the line's name. One that is there already is only moved on.

    Raises:
        Refusal: NOT_FOUND for a branch or base that is not there; NO_CHANGE where nothing was kept; BRANCH_MOVED where
            ``name`` holds other commits; USAGE.
    """
    history = History(root)
    refs, head = history.refs, history.checks.head()
    line = branch or head.branch.removeprefix(_HEADS)
    name = name or REVIEW + line
    tip = refs.resolve(f"{_HEADS}{line}^{{commit}}") if refs.is_branch_name(line) else None
    if tip is None:
        raise Refusal(Status.NOT_FOUND, f"there is no branch {line!r:.80}: `git branch` lists them")
    if not refs.is_branch_name(name) or _HEADS + name in (head.branch, _HEADS + line):
        raise Refusal(Status.USAGE, f"{name!r:.80} cannot be the branch for review: wanted a new name")
    lines = of_branch(history, Head(branch=_HEADS + line, commit=tip), refs.texts(ROWS).values())
    rows = map(ledger.parse_row, lines[1:])
    kept = {row.commit: row for row in rows if row.decision == Decision.KEPT}
    begin = _base(history, line, base, head, tip)
    commits = refs.own_line(tip, begin)
    chosen = [commit for commit in commits if commit in kept]
    if not chosen:
        raise Refusal(Status.NO_CHANGE, f"no experiment was kept on {line} since {begin[:10] or 'its beginning'}")
    begin = begin or refs.resolve(f"{chosen[0]}^") or ""
    made: list[str] = []
    for commit in chosen:
        made.append(history.objects.copy(commit, parent=(made or [begin])[-1], files=_files(history, commit, kept)))
    _point(history, name, made[-1])
    after = commits[commits.index(chosen[0]) :]
    kernels = sorted({kept[commit].kernel for commit in chosen})
    objects = history.objects
    return Finalized(
        branch=name,
        base=begin,
        commits=tuple(made),
        left_out=len(after) - len(chosen),
        differs=tuple(one for one in kernels if objects.entry(tip, one) != objects.entry(made[-1], one)),
    )


def _base(history: History, line: str, given: str, head: Head, tip: str) -> str:
    refs = history.refs
    if given:
        base = None if given.startswith("-") else refs.resolve(f"{given}^{{commit}}")
        if base is None or not refs.is_ancestor(base, tip):
            raise Refusal(
                Status.NOT_FOUND, f"{given!r:.80} is no commit that the line comes from: name one with --base"
            )
        return base
    if tip != head.commit:
        common = history.remotes.common(head.commit, tip)
        return "" if common in (None, tip) else str(common)
    upstream = _upstream(history, line, tip)
    if upstream == tip:
        todo = "--base COMMIT says where to begin instead"
        raise Refusal(Status.NO_CHANGE, f"nothing was kept on {line} since its upstream, {tip[:10]}: {todo}")
    return upstream


def _upstream(history: History, line: str, tip: str) -> str:
    """Where a line parted from its upstream, or else last from any branch of a remote; ``""`` where there is none."""
    named = history.refs.resolve(f"{line}@{{upstream}}")
    others = [named] if named else history.refs.under(_REMOTES).values()
    found = ""
    for common in filter(None, (history.remotes.common(other, tip) for other in dict.fromkeys(others))):
        if not found or history.refs.is_ancestor(found, common):
            found = common
    return found


def _files(history: History, commit: str, kept: dict[str, Row]) -> dict[str, Entry]:
    kernel = kept[commit].kernel
    lock = lock_path(Path(kernel)).as_posix()
    entries = {path: history.objects.entry(commit, path) for path in (kernel, lock)}
    return {path: entry for path, entry in entries.items() if entry is not None}


def _point(history: History, name: str, commit: str) -> None:
    there = history.refs.resolve(_HEADS + name)
    if there is not None and not history.refs.is_ancestor(there, commit):
        message = f"branch {name} is at {there[:10]} with other commits: `git branch -D {name}`, or --as another name"
        raise Refusal(Status.BRANCH_MOVED, message)
    if there != commit:
        history.refs.move_branch(_HEADS + name, new=commit, old=there or "0" * len(commit), reason="ratchet: finalize")
