"""``./ratchet.sh merge REMOTE``"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path

from ratchet.loop.experiment import Idea, run_experiment
from ratchet.loop.judge import Judge
from ratchet.loop.merge import Contender, Merged, merge
from ratchet.loop.trial import Outcome
from ratchet.tpu.chips import CHIPS
from ratchet.values.status import Status
from ratchet.view.branches import Winner, merge_document, merge_text
from ratchet.view.document import dumps
from ratchet.wiring import JudgeFunction, RepositoryJudge


def command(options: argparse.Namespace, *, root: Path, function: JudgeFunction, say: Callable[[str], None]) -> int:
    """Take the rows of another clone's ledger; its kernel is judged again here before it becomes HEAD's."""
    chip = CHIPS[options.chip]
    judge = dataclasses.replace(RepositoryJudge.modelling(root, function, chip), remember=not options.fresh)
    done, outcomes = merged(options.remote, branch=options.branch, root=root, judge=judge, wait_s=options.wait, say=say)
    winners = [
        Winner(kernel=one.row.kernel, decision=one.decision or "none", reason=one.reason, id=one.row.id)
        for one in outcomes
    ]
    shown = {"came": done.came, "only_ahead": done.only_ahead, "row": done.row, "winners": winners}
    if options.json:
        print(dumps(merge_document(done.name, **shown)))  # type: ignore[arg-type]
    else:
        print(merge_text(done.name, **shown))  # type: ignore[arg-type]
    return (Status.PASS if done.came or outcomes else Status.NO_CHANGE).exit_code


def merged(
    source: str, *, branch: str, root: Path, judge: Judge, wait_s: float, say: Callable[[str], None]
) -> tuple[Merged, tuple[Outcome, ...]]:
    """The merge, and a turn of the ratchet for each kernel of the other line that may be better than HEAD's.

    Raises:
      Refusal: as ``merge`` and ``run_experiment``; what was merged by then stays, and asking again goes on from there.
    """
    done = merge(source, branch=branch, root=root, judge=judge, wait_s=wait_s, progress=say)
    outcomes = []
    for one in done.contenders:
        say(f"judging {one.kernel} of {done.name} again, here")
        idea = Idea(message=_message(done, one), text=one.text)
        outcomes.append(
            run_experiment(idea, root=root, kernel=Path(one.kernel), judge=judge, wait_s=wait_s, progress=say)
        )
    return done, tuple(outcomes)


def _message(done: Merged, one: Contender) -> str:
    of = f"\n\nExperiment {one.row} of that line." if one.row else ""
    return f"merge: {one.kernel} of {done.name}{of}"
