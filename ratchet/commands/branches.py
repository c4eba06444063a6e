"""``branches``, ``finalize`` and ``merge``: lines of experiments beside each other, and where ``--branch`` goes on."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.commands.options import Options, json_option, side_by_side, text_option
from ratchet.exam.judge.seal import seal
from ratchet.exam.judge.secret import clone_folder
from ratchet.loop import branches, ledger
from ratchet.loop.branches import finalize
from ratchet.loop.decide import conditions_of, scored
from ratchet.loop.experiment import Idea, run_experiment
from ratchet.loop.merge import Merged, merge
from ratchet.loop.trial import Judge, Outcome
from ratchet.tpu.chips import CHIPS
from ratchet.values import MEASURED, Decision, Row
from ratchet.values.status import Refusal, Status
from ratchet.view.document import dumps, plain
from ratchet.view.text import clean, columns, first_line, fixed, kind_of
from ratchet.wiring import JudgeFunction, RepositoryJudge

FOLDER = "lines"
"""In ``.ratchet``: the work trees of lines."""


def branch_options(parser: Options) -> None:
    """Where and with what candidates are judged."""
    text_option(parser, "--branch", "NAME", "go on there, in .ratchet/lines/NAME; a new one begins at HEAD")
    text_option(parser, "--cluster", "HOST:PORT", "judge on the nodes of that Ray cluster; see `node`")
    parser.add_argument(
        "--on",
        choices=MEASURED,
        default="",
        help="time it on this device, beside HEAD's kernel, in a series of its own; with --cluster on nodes with one",
    )


def modelling(options: argparse.Namespace, root: Path, function: JudgeFunction) -> RepositoryJudge:
    """The judge that ``--chip`` and ``--fresh`` ask for."""
    judge = RepositoryJudge.modelling(root, function, CHIPS[options.chip])
    return dataclasses.replace(judge, remember=not options.fresh)


def on_line(root: Path, kernel: Path, branch: str, say: Callable[[str], None]) -> tuple[Path, Path]:
    """The top and the kernel file where ``branch`` goes on; the caller's own where none is named.

    Raises:
      Refusal: as ``branches.line_of``; SEAL_BROKEN where the branch holds another judge than the one that runs.
    """
    if not branch:
        return root, kernel
    top = branches.line_of(root, branch, folder=clone_folder(root) / FOLDER)
    if seal(root) != seal(top):
        what = f"the branch {branch!r:.80} holds another judge than {root.name}, seal {seal(top)}, here {seal(root)}"
        raise Refusal(Status.SEAL_BROKEN, f"{what}: bring it up to date first, `git -C {top} merge …`")
    if top != root:
        say(f"on branch {branch}, in {top}")
    inside = kernel.relative_to(root) if kernel.is_relative_to(root) else Path(kernel.name)
    return top, top / inside


# --- branches ---


@dataclass(frozen=True, kw_only=True)
class Line:
    """One kernel on one branch."""

    branch: str
    is_head: bool
    kernel: str
    evaluator: str
    rows: int
    kept: int
    best_ms: float | None
    best_score: float | None
    best_id: str
    fork: str
    """Id of the last row that it has in common with HEAD's line; ``""`` where there is none, or it is HEAD's."""
    since_fork: int
    """Rows after that."""

    @property
    def latency(self) -> str | None:
        """Whether its latencies are modelled or measured."""
        return kind_of(self.evaluator) if self.evaluator else None


def branches_options(parser: argparse.ArgumentParser) -> None:
    """No more than ``--json``."""
    json_option(parser, "print the table as one JSON document")


def branches_command(options: argparse.Namespace, *, root: Path) -> int:
    """Lines beside each other."""
    shown = [one for line in branches.lines(root) for one in _lines(line)]
    print(dumps(branches_document(shown)) if options.json else branches_table(shown))
    return Status.PASS.exit_code


def _lines(line: branches.Line) -> Iterator[Line]:
    """One for each kernel and evaluator, since scores of two are never compared."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in line.rows:
        if row.decision != ledger.MERGED:
            groups.setdefault((row.kernel, row.evaluator), []).append(row)
    for (kernel, evaluator), rows in groups.items():
        best = _best(rows)
        yield Line(
            branch=line.branch,
            is_head=line.is_head,
            kernel=kernel,
            evaluator=evaluator,
            rows=len(rows),
            kept=sum(row.decision == Decision.KEPT for row in rows),
            best_ms=float(best.median_ms) if best else None,
            best_score=float(best.score) if best else None,
            best_id=best.id if best else "",
            fork=line.fork.id if line.fork else "",
            since_fork=line.since,
        )


def _best(rows: list[Row]) -> Row | None:
    """The best that was kept, or is HEAD's, under the conditions of the newest score."""
    counted = [row for row in rows if row.in_place and scored(row) is not None]
    same = [row for row in counted if conditions_of(row) == conditions_of(counted[-1])]
    return max(same, key=lambda row: scored(row) or 0.0, default=None)


def branches_table(lines: Sequence[Line]) -> str:
    """One line each: best score and latency, how many rows, and where it parted from HEAD's."""
    if not lines:
        return "No branch has a row yet."
    cells = [["", "branch", "kernel", "best", "ms", "", "rows", "kept", "row of it", "parted after", "since"]]
    cells += [
        [
            "*" if one.is_head else "",
            clean(one.branch),
            clean(one.kernel),
            "-" if one.best_score is None else fixed(one.best_score),
            "-" if one.best_ms is None else fixed(one.best_ms),
            one.latency or "",
            str(one.rows),
            str(one.kept),
            clean(one.best_id),
            "" if one.is_head else clean(one.fork) or "the beginning",
            "" if one.is_head else str(one.since_fork),
        ]
        for one in lines
    ]
    return "\n".join([*columns(cells), "* what HEAD is on; the best of each, under the conditions of its newest score"])


def branches_document(lines: Sequence[Line]) -> dict[str, Any]:
    """The same as JSON: latencies in ms, null where there is none."""
    return {"kind": "branches", "lines": plain(lines, {Line: {...: (), "latency": "latency"}})}


# --- finalize ---


def finalize_options(parser: argparse.ArgumentParser) -> None:
    """A line, where to begin, and the branch to make."""
    text_option(parser, "--branch", "NAME", "the line; default: the one that HEAD is on")
    text_option(parser, "--base", "REV", "where to begin; default: where the line began")
    parser.add_argument(
        "--as", dest="name_of_branch", default="", metavar="NEW", help="the branch to make; default: review/NAME"
    )
    json_option(parser)


def finalize_command(options: argparse.Namespace, *, root: Path) -> int:
    """A branch of the kept experiments."""
    done = finalize(root, branch=options.branch, base=options.base, name=options.name_of_branch)
    if options.json:
        print(dumps({"kind": "finalized", **plain(done)}))
        return Status.PASS.exit_code
    commits = f"{len(done.commits)} commit{'s' * (len(done.commits) > 1)}"
    print(f"{clean(done.branch)}: {commits} on {done.base[:10]}, one for each kept experiment")
    if done.left_out:
        print(f"{done.left_out} other commits of the line are left out: merges, and what was committed by hand")
    for kernel in done.differs:
        print(f"{clean(kernel)} differs from the line's: it was changed there by other commits, too")
    print(f"look at it: git log -p {shlex.quote(f'{done.base[:10]}..{clean(done.branch)}')}")
    return Status.PASS.exit_code


# --- merge ---


def merge_options(parser: argparse.ArgumentParser) -> None:
    """Another clone."""
    parser.add_argument("remote", metavar="REMOTE", help="a remote's name, a URL, or the folder of another clone")
    text_option(parser, "--branch", "NAME", "which of its branches; default: what its HEAD is on")
    side_by_side(parser)


def merge_command(
    options: argparse.Namespace, *, root: Path, function: JudgeFunction, say: Callable[[str], None]
) -> int:
    """Take the rows of another clone's ledger; its kernel is judged again here before it becomes HEAD's."""
    judge = modelling(options, root, function)
    done, outcomes = merged(options.remote, branch=options.branch, root=root, judge=judge, wait_s=options.wait, say=say)
    print(dumps(merge_document(done, outcomes)) if options.json else merge_text(done, outcomes))
    return (Status.PASS if done.came or outcomes else Status.NO_CHANGE).exit_code


def merged(
    source: str, *, branch: str, root: Path, judge: Judge, wait_s: float, say: Callable[[str], None]
) -> tuple[Merged, tuple[Outcome, ...]]:
    """The merge, and an experiment for each kernel of the other line that may be better than HEAD's.

    Raises:
      Refusal: as ``merge`` and ``run_experiment``; what was merged by then stays, and asking again goes on from there.
    """
    done = merge(source, branch=branch, root=root, judge=judge, wait_s=wait_s, progress=say)
    outcomes = []
    for one in done.contenders:
        say(f"judging {one.kernel} of {done.name} again, here")
        of = f"\n\nExperiment {one.row} of that line." if one.row else ""
        idea = Idea(message=f"merge: {one.kernel} of {done.name}{of}", text=one.text)
        outcomes.append(
            run_experiment(idea, root=root, kernel=Path(one.kernel), judge=judge, wait_s=wait_s, progress=say)
        )
    return done, tuple(outcomes)


def merge_text(done: Merged, outcomes: Sequence[Outcome]) -> str:
    """What came, how the ledgers became one, and what became of the other line's kernels."""
    name = clean(done.name)
    rows = "1 row" if done.came == 1 else f"{done.came} rows"
    if not done.came:
        lines = [f"nothing to merge: every row of {name} is here"]
    elif done.only_ahead:
        lines = [f"{rows} came: {name} was only ahead, and this line is now the same"]
    else:
        lines = [f"{rows} came of {name}; merge row {clean(done.row)} joins the two lines"]
    lines += [
        f"{clean(one.row.kernel)}: {one.decision or 'none'}, {first_line(one.reason)} (row {one.row.id})"
        for one in outcomes
    ]
    return "\n".join(lines)


def merge_document(done: Merged, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The same as JSON."""
    judged = {
        "kernel": "row.kernel",
        "decision": lambda one: one.decision or "none",
        "reason": "reason",
        "id": "row.id",
    }
    return {
        "kind": "merge",
        "of": done.name,
        "rows": done.came,
        "only_ahead": done.only_ahead,
        "merge_row": done.row or None,
        "judged": plain(outcomes, {Outcome: judged}),
    }
