"""A real repository to experiment in, and a judge that reads its verdict from the kernel file.

``SCORE = 1500.0`` in a kernel file is a PASS with that score, ``STATUS = "WRONG_VALUES"`` a failure, and
``TIMES = 1.98, 0.4`` its latency and the waiting in it, in ms, with the band of a model that may err by 6 %.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.exam.problem.problem import lock_path
from ratchet.loop import ledger, state
from ratchet.loop.experiment import Idea, run_experiment
from ratchet.loop.trial import Outcome
from ratchet.process.root import Root
from ratchet.values import Against, Band, Bar, Conditions, Row, Score, Verdict
from ratchet.values.status import Status

CONDITIONS = Conditions(evaluator="v5e-model", chip="v5e", compiler="libtpu 1 / jax 1", seal="5ea1", problem="9b0b")
IGNORED = "hlo_dumps/\n"


def kernel_text(score: float | str, extra: str = "") -> str:
    return f"SCORE = {score}\n{extra}"


def verdict_of(text: str, kernel: str = "kernel.py", conditions: Conditions = CONDITIONS) -> Verdict:
    failure = re.search(r'^STATUS = "(\w+)"', text, re.MULTILINE)
    status = Status[failure[1]] if failure else Status.PASS
    value = re.search(r"^SCORE = (\S+)", text, re.MULTILINE)
    score = None
    if status is Status.PASS:
        number = float(value[1]) if value else 1.0
        score = Score(
            score=number, latency_ms=2.0, util_pct=50.0, tflops=98.5, regime="compute-bound", bw_util_pct=1.25
        )
        times = re.search(r"^TIMES = (\S+), (\S+)", text, re.MULTILINE)
        if times:
            latency, wait = map(float, times.groups())
            band = Band(bound_by="compute", low_ms=latency / 1.06, high_ms=latency * 1.06)
            score = dataclasses.replace(score, latency_ms=latency, wait_ms=wait, band=band)
    return Verdict(
        status=status,
        reason="as the kernel file says",
        kernel=kernel,
        kernel_name="fake",
        conditions=conditions,
        score=score,
        steps=(),
        source_sha256="",
        seconds=0.25,
    )


NO_FILES: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "link": lambda path: path.symlink_to("other.txt"),
}
"""What makes something else of a path that is free."""


@dataclass
class Stage:
    """A repository under ``root`` with one commit: the kernel, another file, and a .gitignore."""

    root: Path
    kernel: str = "kernel.py"
    conditions: Conditions = CONDITIONS
    seal: str = "5ea1"
    sealed: tuple[str, ...] = ()
    """Paths of the judge's files."""
    evidence: Callable[[str], str] = lambda _id: ""
    """The digest of an experiment's evidence."""
    freezes: bool = False
    """The judge writes a problem lock where there is none."""
    hurried: bool = False
    """The judge does not check the values of what cannot be kept."""
    during: Callable[[], None] = lambda: None
    """Called while judging."""
    given: bytes | None = None
    """A candidate that is in no file."""
    judged: list[str] = field(default_factory=list)
    """The texts that were judged, in order."""

    @classmethod
    def new(cls, root: Path, *, kernel: str = "kernel.py", score: float | str = 1000.0) -> Stage:
        stage = cls(root=root, kernel=kernel)
        root.mkdir(parents=True, exist_ok=True)
        stage.git("init", "-q", "-b", "main")
        stage.git("config", "user.name", "A. User")
        stage.git("config", "user.email", "user@example.invalid")
        stage.write(kernel_text(score))
        (root / "other.txt").write_text("other\n")
        (root / ".gitignore").write_text(IGNORED)
        stage.git("add", ".")
        stage.git("commit", "-q", "-m", "first")
        return stage

    def clone(self, root: Path, *options: str) -> Stage:
        """A clone by another user, without what refs of the ratchet's own hold."""
        clone = Stage(root=root)
        self.git("clone", "-q", *(options or ("--no-local",)), f"file://{self.root}", str(root))
        clone.git("config", "user.name", "Another")
        clone.git("config", "user.email", "another@example.invalid")
        return clone

    def leave(self, name: str, record: object) -> None:
        """A file of state as a run with this machine's key leaves it."""
        (self.root / ".git" / "ratchet").mkdir(exist_ok=True)
        state.save(Root(self.root.resolve() / ".git"), name, record)

    def left(self, name: str) -> Any:
        """What a run left there; None where nothing."""
        return state.load(Root(self.root.resolve() / ".git"), name)

    def git(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.root, check=False, capture_output=True)
        if check and done.returncode:
            raise AssertionError(f"git {arguments}: {done.stderr.decode()}")
        return done.stdout.decode(errors="surrogateescape").removesuffix("\n")

    def write(self, text: str) -> None:
        path = self.root / self.kernel
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self) -> str:
        return (self.root / self.kernel).read_text()

    @property
    def lock(self) -> Path:
        return lock_path(self.root / self.kernel)

    @property
    def ledger(self) -> Path:
        return self.root / ledger.NAME

    def rows(self) -> tuple[Row, ...]:
        return ledger.read(self.ledger)

    def run(self, message: str = "an idea", *, idea: Idea | None = None, **options: object) -> Outcome:
        """One experiment, by the stage's own judge unless another is given."""
        arguments = {"root": self.root, "kernel": Path(self.kernel), "judge": StageJudge(self), **options}
        return run_experiment(idea or Idea(message=message), **arguments)  # type: ignore[arg-type]

    def status(self) -> list[str]:
        return self.git("status", "--porcelain").splitlines()

    def head(self) -> str:
        return self.git("rev-parse", "HEAD")


class StageJudge:
    """A ``Judge`` that reads its verdict from the kernel file."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def judge(
        self,
        kernel_path: Path,
        *,
        kernel_rel: str,
        evidence_id: str,
        against: Against | None = None,
        bar: Bar | None = None,
    ) -> Verdict:
        stage, text = self.stage, kernel_path.read_text(errors="replace")
        stage.judged.append(text)
        if stage.freezes and not stage.lock.exists():
            stage.lock.write_text('{"problem": "frozen"}\n')
        stage.during()
        verdict = verdict_of(text, kernel_rel, stage.conditions)
        if stage.hurried and bar and verdict.score and (why := bar(verdict.score)):
            return dataclasses.replace(verdict, status=Status.UNCHECKED, reason=why)
        return verdict

    def conditions(self, kernel_rel: str) -> Conditions:
        return self.stage.conditions

    def seal(self) -> str:
        return self.stage.seal

    def protected_paths(self) -> tuple[str, ...]:
        return self.stage.sealed

    def evidence(self, evidence_id: str) -> str:
        return self.stage.evidence(evidence_id)
