"""Several candidates from one parent: modelled side by side, then each recorded by the loop, the fastest first.

Every candidate becomes a row, by the same turn as any experiment: a commit, a verdict, and kept or reverted. What the
model turns down, or the compiler refuses, is settled by then; the values of what could be kept are checked in its turn.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ratchet.candidate.problem import lock_path
from ratchet.judge import evidence
from ratchet.judge.lanes import Lanes
from ratchet.judge.request import Request
from ratchet.judge.steps import Progress
from ratchet.judge.workers import Workers
from ratchet.loop import log
from ratchet.loop.decide import conditions_of, speaks_of_the_kernel
from ratchet.loop.experiment import Idea, run_experiment
from ratchet.loop.history import History
from ratchet.search.asked import Asked
from ratchet.search.cluster import Cluster, connected
from ratchet.search.settled import Settled
from ratchet.values import Conditions, Decision, Row, Verdict
from ratchet.values.status import Refusal, Status
from ratchet.wiring import RepositoryJudge

LANES = 2
"""Candidates that are modelled at once. A compile needs up to several GiB."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One version of the kernel file."""

    text: bytes
    message: str
    """Of its commit."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What candidates of one kernel file are judged with."""

    judge: RepositoryJudge
    kernel: str
    """Path of the kernel file, relative to the top of the repository."""
    lanes: Lanes | None
    """Of this machine; None where a cluster models."""
    cluster: Cluster | None = None
    beside: tuple[str, ...] = ()
    """Files that may differ from HEAD: see ``Idea``."""
    compound: bool = True
    """Whether a candidate may change several things at once."""
    wait_s: float = 0.0
    say: Callable[[str], None]

    @property
    def root(self) -> Path:
        return self.judge.root

    def rows(self, candidates: Sequence[Candidate]) -> list[Row]:
        """The row of every candidate, in their order. One that has a row already is not judged again.

        Raises:
          Refusal: as ``run_experiment``; what was recorded by then stays, and asking again goes on from there.
        """
        conditions = self.judge.conditions(self.kernel)
        blobs = [self._blob(one) for one in candidates]
        found = known_rows(self.root, self.kernel, conditions)
        new = {blob: one for blob, one in zip(blobs, candidates, strict=True) if blob not in found}
        with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
            running = {blob: self._submit(Path(folder, blob), one, conditions) for blob, one in new.items()}
            verdicts = {blob: future.result() for blob, future in running.items()}
        for blob in sorted(verdicts, key=lambda one: _latency(verdicts[one])):
            found = {**found, blob: self._record(new[blob], verdicts[blob])}
        return [found[blob] for blob in blobs]

    def _blob(self, candidate: Candidate) -> str:
        return History(self.root).files.store(self.kernel, candidate.text)

    def _submit(self, folder: Path, candidate: Candidate, conditions: Conditions) -> Future[Verdict]:
        """Model it on a lane of this machine, or of the cluster's."""
        if self.cluster is None:
            assert self.lanes is not None
            return self.lanes.submit(partial(self._model, folder, candidate, conditions))
        lock = lock_path(self.root / self.kernel)
        return self.cluster.submit(
            Asked(
                text=candidate.text,
                kernel=self.kernel,
                lock=lock.read_bytes() if lock.exists() else None,
                conditions=conditions,
                chip=self.judge.chip.name,
                remember=self.judge.remember,
            )
        )

    def _model(self, folder: Path, candidate: Candidate, conditions: Conditions, workers: Workers) -> Verdict:
        """Contract, compile, memory and schedule, and no values."""
        folder.mkdir()
        kernel = folder / Path(self.kernel).name
        kernel.write_bytes(candidate.text)
        request = Request(
            kernel=kernel,
            root=self.root,
            kernel_rel=self.kernel,
            conditions=conditions,
            chip=self.judge.chip,
            model_only=True,
            remember=self.judge.remember,
        )
        return self.judge.function(request, workers=workers)

    def _record(self, candidate: Candidate, verdict: Verdict) -> Row:
        idea = Idea(message=candidate.message, text=candidate.text, beside=self.beside, compound=self.compound)
        outcome = run_experiment(
            idea,
            root=self.root,
            kernel=Path(self.kernel),
            judge=Settled(full=self.judge, verdict=verdict),
            wait_s=self.wait_s,
        )
        row = outcome.row
        if not speaks_of_the_kernel(Status[row.status]) or outcome.status is Status.BRANCH_MOVED:
            raise Refusal(outcome.status, f"{outcome.reason}; the same command goes on from here")
        self.say(f"{candidate.message.splitlines()[0]}: {outcome.decision}, {row.reason}")
        with contextlib.suppress(Refusal, OSError):  # evidence that stays too long is no reason to fail
            keep = {one.id for one in (row, outcome.incumbent) if one is not None}
            evidence.prune(self.root, log.experiments(self.root), keep=keep)
        return row


def known_rows(root: Path, kernel: str, conditions: Conditions) -> Mapping[str, Row]:
    """The newest row of every version of a kernel that was judged here under these conditions, by its blob."""
    return {
        row.kernel_blob: row
        for row in log.trusted(History(root), log.rows(root))
        if row.kernel == kernel and conditions_of(row) == conditions and speaks_of_the_kernel(Status[row.status])
    }


@contextlib.contextmanager
def bench(
    judge: RepositoryJudge, kernel: str, *, one_file: bool, lanes: int = LANES, address: str = "", **options: Any
) -> Iterator[Bench]:
    """A bench with lanes of its own, and with children for full verdicts that are kept from one to the next.

    ``one_file``: all candidates are versions of one file, which differ in constants alone. ``address``: of a cluster
    that models in the place of these lanes.
    """
    with contextlib.ExitStack() as stack:
        kept: list[Workers] = []

        def function(request: Request, *, workers: Workers | None = None, progress: Progress | None = None) -> Verdict:
            if workers is None and not kept:
                kept.append(stack.enter_context(Workers(judge.chip, keep=True)))
            return judge.function(request, workers=workers or kept[0], progress=progress)

        side, away = None, None
        if address:
            away = stack.enter_context(connected(address, say=options["say"]))
        else:
            side = stack.enter_context(Lanes(lanes, partial(Workers, judge.chip, keep=not one_file, one_file=one_file)))
        yield Bench(judge=replace(judge, function=function), kernel=kernel, lanes=side, cluster=away, **options)


def baseline(
    judge: RepositoryJudge, kernel: Path, *, wait_s: float, say: Callable[[str], None], beside: tuple[str, ...] = ()
) -> Row:
    """The row of HEAD's kernel, which is judged where it has none yet.

    Raises:
      Refusal: as ``run_experiment``; and with its status where HEAD's kernel is refused.
    """
    say("HEAD's kernel first")
    outcome = run_experiment(
        Idea(message=f"baseline: judge {kernel.name} as HEAD has it", beside=beside),
        root=judge.root,
        kernel=kernel,
        judge=judge,
        wait_s=wait_s,
        progress=say,
    )
    if not outcome.row.median_ms or outcome.decision not in ("", Decision.BASELINE):
        raise Refusal(outcome.status, f"HEAD's kernel has to pass first: {outcome.reason}")
    return outcome.row


def _latency(verdict: Verdict) -> float:
    return verdict.score.latency_ms if verdict.score else math.inf
