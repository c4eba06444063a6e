"""``./ratchet.sh branches``, ``./ratchet.sh finalize``, and where ``--branch`` goes on."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from ratchet.exam.judge.seal import seal
from ratchet.exam.judge.secret import clone_folder
from ratchet.loop import branches, ledger
from ratchet.loop.branches import finalize
from ratchet.loop.decide import conditions_of, scored
from ratchet.values import Decision, Row
from ratchet.values.status import Refusal, Status
from ratchet.view.branches import Line, branches_document, branches_table
from ratchet.view.document import dumps
from ratchet.view.text import clean

FOLDER = "lines"
"""In ``.ratchet``: the work trees of lines."""


def command(options: argparse.Namespace, *, root: Path) -> int:
    """Lines beside each other."""
    shown = [one for line in branches.lines(root) for one in shown_of(line)]
    print(dumps(branches_document(shown)) if options.json else branches_table(shown))
    return Status.PASS.exit_code


def shown_of(line: branches.Line) -> Iterator[Line]:
    """A line as the table shows it: one for each kernel and evaluator, since scores of two are never compared."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in line.rows:
        if row.decision != ledger.MERGED:
            groups.setdefault((row.kernel, row.evaluator), []).append(row)
    for (kernel, evaluator), rows in groups.items():
        best = best_of(rows)
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


def best_of(rows: list[Row]) -> Row | None:
    """The best that was kept, or is HEAD's, under the conditions of the newest score."""
    counted = [row for row in rows if row.in_place and scored(row) is not None]
    same = [row for row in counted if conditions_of(row) == conditions_of(counted[-1])]
    return max(same, key=lambda row: scored(row) or 0.0, default=None)


def finalize_command(options: argparse.Namespace, *, root: Path) -> int:
    """A branch of the kept experiments."""
    done = finalize(root, branch=options.branch, base=options.base, name=options.name_of_branch)
    if options.json:
        document = {"kind": "finalized", "branch": done.branch, "base": done.base, "commits": list(done.commits)}
        print(dumps({**document, "left_out": done.left_out, "differs": list(done.differs)}))
        return Status.PASS.exit_code
    count = len(done.commits)
    print(f"{clean(done.branch)}: {count} commit{'s' * (count > 1)} on {done.base[:10]}, one for each kept experiment")
    if done.left_out:
        print(f"{done.left_out} other commits of the line are left out: merges, and what was committed by hand")
    for kernel in done.differs:
        print(f"{clean(kernel)} differs from the line's: it was changed there by other commits, too")
    print(f"look at it: git log -p {shlex.quote(f'{done.base[:10]}..{clean(done.branch)}')}")
    return Status.PASS.exit_code


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
