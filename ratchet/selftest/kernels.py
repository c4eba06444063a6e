"""Kernels of the corpus, judged by the real judge in a folder that is thrown away: no ledger, no branch, no row."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ratchet.exam.judge.request import Request
from ratchet.exam.judge.workers import Workers
from ratchet.process.sandbox.child import Limits
from ratchet.selftest.corpus import MODEL, Cheat, Honest, trial
from ratchet.selftest.defences import caught_by
from ratchet.tpu.chips import V5E
from ratchet.values import Conditions, Verdict
from ratchet.values.status import Status
from ratchet.values.trial import NO_GAIN, Trial

HANGING = Limits(seconds=20, memory_bytes=8 << 30)
"""What a cheat may use that never ends: a verdict's own deadline is six times as long, and no other wall."""
NOISE = 0.5
"""A measured kernel that takes this share of the honest one's time is no faster: machines that test are busy."""
FILE = "kernel.py"


class Judge(Protocol):
    """``prepare.judge``."""

    def __call__(self, request: Request, *, workers: Workers | None = None) -> Verdict: ...


class Bases:
    """The honest kernels, each judged once, with the folder in which its problem is then frozen."""

    def __init__(self, honest: Mapping[str, Honest], folder: Path, judge: Judge) -> None:
        self.honest, self._folder, self._judge = honest, folder, judge
        self._locks = {name: threading.Lock() for name in honest}
        self._verdicts: dict[str, Verdict] = {}

    def root(self, name: str) -> Path:
        """Where its problem is frozen."""
        return self._folder / "honest" / name

    def verdict(self, name: str, workers: Workers) -> Verdict:
        """Its verdict. Several threads may ask."""
        with self._locks[name]:
            if name not in self._verdicts:
                one, root = self.honest[name], self.root(name)
                root.mkdir(parents=True)
                (root / FILE).write_text(one.source)
                self._verdicts[name] = self._judge(request(root / FILE, root, one.on), workers=workers)
        return self._verdicts[name]


def request(kernel: Path, root: Path, on: str, **options: object) -> Request:
    """A request to judge ``kernel`` by the problem that is frozen in ``root``."""
    conditions = Conditions(evaluator=on, chip=V5E.name if on == MODEL else "", compiler="", seal="", problem="")
    asked = Request(kernel=kernel, root=root, kernel_rel=FILE, conditions=conditions)
    return dataclasses.replace(asked, **options)  # type: ignore[arg-type]


def judge_honest(one: Honest, bases: Bases, workers: Workers) -> Trial:
    """An honest kernel has to pass."""
    verdict = bases.verdict(one.name, workers)
    return _trial(one, verdict, kind=verdict.kernel_name, defence=caught_by(verdict.steps))


def judge_cheat(cheat: Cheat, bases: Bases, workers: Workers, judge: Judge, folder: Path) -> Trial:
    """A cheat has to end as it says, by one of the defences that it names. ``folder`` is new and its own."""
    folder.mkdir(parents=True)
    alone = cheat.base not in bases.honest
    honest = None if alone else bases.verdict(cheat.base, workers)
    source = cheat.text if alone else f"{bases.honest[cheat.base].source}\n\n{cheat.text}"
    root = folder if cheat.own_problem else bases.root(cheat.base)
    (folder / FILE).write_text(source)
    options = {"limits": HANGING} if Status.TIMEOUT.name in cheat.expected else {}
    verdict = judge(request(folder / FILE, root, cheat.on, **options), workers=workers)
    passes = honest is not None and NO_GAIN in cheat.expected and not gained(verdict, honest, cheat.on)
    defence = caught_by(verdict.steps) if cheat.said in verdict.reason else ""
    return _trial(cheat, verdict, got=NO_GAIN if passes else verdict.status.name, defence=defence, seen=not passes)


def _trial(entry: Honest | Cheat, verdict: Verdict, **known: object) -> Trial:
    return trial(entry, **{"got": verdict.status.name, "reason": verdict.reason, "seconds": verdict.seconds, **known})


def gained(verdict: Verdict, honest: Verdict, on: str) -> bool:
    """Whether a kernel is said to be faster than the honest one, or did not pass."""
    if verdict.score is None or honest.score is None:
        return True
    share = 1.0 if on == MODEL else NOISE
    return verdict.score.latency_ms < share * honest.score.latency_ms
