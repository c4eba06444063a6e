"""``python -m ratchet``: what ``./ratchet.sh`` calls."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ratchet.process.boot.start import starting

with starting():
    from ratchet.commands import options
    from ratchet.process.sandbox import warm
    from ratchet.values.status import Refusal

if TYPE_CHECKING:
    from ratchet.exam.judge.request import Request
    from ratchet.exam.judge.steps import Progress
    from ratchet.exam.judge.workers import Workers
    from ratchet.values import Verdict


def judge(request: Request, *, workers: Workers | None = None, progress: Progress | None = None) -> Verdict:
    """``prepare.judge``, imported when something is judged: `log` answers at once."""
    with starting():  # NumPy is imported here, and takes an interrupt for an error of its own
        from prepare import judge as judged
    return judged(request, workers=workers, progress=progress)


def _begin(parse: Callable[[Sequence[str]], argparse.Namespace], given: Sequence[str]) -> None:
    """What a verdict waits for, while what it takes to judge is imported."""
    from pathlib import Path

    from ratchet.process.boot import children, installed

    for folder in children.packages():
        installed.begin(Path(folder))
    warm.begin()
    if options.asks_for_help(given):
        return
    with contextlib.suppress(Refusal):  # it is said where the command line is read to be followed
        asked = parse(given)
        from ratchet.exam.judge import speculative

        speculative.begin(asked.kernel, options.evaluator(asked), new_problem=getattr(asked, "new_problem", False))


def run() -> int:
    """The console script ``ratchet``."""
    given = sys.argv[1:]
    with starting():
        if options.is_experiment(given):
            _begin(options.ratchet, given)
        from ratchet.commands.cli import main
    return main(given, judge)


def run_prepare() -> int:
    """What ``python prepare.py`` calls."""
    with starting():
        _begin(options.prepare, sys.argv[1:])
        from prepare import judge as judged
        from ratchet.commands.cli import prepare_main
    return prepare_main(sys.argv[1:], judged)


if __name__ == "__main__":
    sys.exit(run())
