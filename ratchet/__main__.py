"""``python -m ratchet``: what ``./ratchet.sh`` calls."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ratchet.process.boot.start import starting

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


def run() -> int:
    """The console script ``ratchet``."""
    with starting():
        from ratchet.commands.cli import main
    return main(sys.argv[1:], judge)


def run_prepare() -> int:
    """What ``python prepare.py`` calls."""
    with starting():
        from prepare import judge as judged
        from ratchet.commands.cli import prepare_main
    return prepare_main(sys.argv[1:], judged)


if __name__ == "__main__":
    sys.exit(run())
