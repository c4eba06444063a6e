"""A branch for review: of a line of experiments those commits alone that were kept, and of them the kernel alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ratchet.exam.problem.problem import lock_path
from ratchet.loop import ledger
from ratchet.loop.checks import Head
from ratchet.loop.history import History
from ratchet.loop.lineage import of_branch
from ratchet.loop.objects import Entry
from ratchet.loop.refs import ROWS
from ratchet.values import Decision, Row
from ratchet.values.status import Refusal, Status

_HEADS = "refs/heads/"
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
        base: Where to begin; default: where the line parted from HEAD's, or HEAD's from its upstream, or before its
            first kept experiment.
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
    other = refs.resolve(f"{line}@{{upstream}}") if tip == head.commit else head.commit
    common = history.remotes.common(other, tip) if other else None
    return "" if common in (None, tip) else common


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
