"""``./ratchet.sh selftest``"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path

from ratchet.selftest import corpus as corpora
from ratchet.selftest import run as selftest
from ratchet.values.status import Status
from ratchet.values.trial import Trial
from ratchet.view.trials import trials_json, trials_table
from ratchet.wiring import JudgeFunction


def command(options: argparse.Namespace, *, root: Path, function: JudgeFunction, say: Callable[[str], None]) -> int:
    """Judge the corpus and print what became of each of its files."""
    start = time.monotonic()
    corpus = corpora.read(root)
    chosen = selftest.choose(corpus, quick=options.quick, pattern=options.only)
    count = itertools.count(1)

    def done(trial: Trial) -> None:
        mark = "" if trial.as_expected or trial.skipped else "! "
        got = trial.got or "skipped"
        say(f"{mark}{next(count)}/{len(chosen.entries)} {trial.name}: {got} in {trial.seconds:.1f} s")

    trials = selftest.run(corpus, chosen, root=root, judge=function, done=done)
    seconds = time.monotonic() - start
    print(trials_table(trials, left_out=chosen.left_out, seconds=seconds))
    if options.json is not None:
        options.json.write_text(trials_json(trials, left_out=chosen.left_out, seconds=seconds))
    fine = all(trial.as_expected or trial.skipped for trial in trials)
    return (Status.PASS if fine else Status.SELFTEST_FAILED).exit_code
