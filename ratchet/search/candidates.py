"""Several candidates from one parent: modelled side by side, then each recorded by the loop, the fastest first.

Every candidate becomes a row, by the same turn as any experiment: a commit, a verdict, and kept or reverted. What the
model turns down, or the compiler refuses, is settled by then; the values of what could be kept are checked in its turn.
On a cluster nodes check the values of all that could be kept meanwhile, so that here only the fastest is judged in
full, and after it what no node refused.

Measured candidates are timed beside HEAD's kernel, on as many devices as there are. Once one is kept, those that were
as promising are timed again, beside it.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import wait as all_done
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ratchet.exam.judge.request import Request
from ratchet.exam.judge.steps import Progress
from ratchet.exam.judge.verdict_cache import CACHEABLE
from ratchet.exam.judge.workers import Workers, WorkerSlots
from ratchet.exam.measure.stats import FASTER
from ratchet.exam.problem.problem import lock_path
from ratchet.loop import log
from ratchet.loop.decide import bar, conditions_of, speaks_of_the_kernel
from ratchet.loop.experiment import Idea, run_experiment
from ratchet.loop.history import History
from ratchet.loop.refs import EXPERIMENTS
from ratchet.loop.rows import comparisons
from ratchet.loop.trial import Judge
from ratchet.process import paths
from ratchet.search.cluster import Cluster
from ratchet.search.protocol import Beside, JudgeRequest
from ratchet.search.remote import Remote, TimedAhead
from ratchet.values import MEASURED, Against, Bar, Conditions, Decision, Point, Row, Verdict
from ratchet.values.status import Refusal, Status
from ratchet.values.verdict import is_tpu
from ratchet.wiring import DUMPS, TRACES, RepositoryJudge, make_folders, prune_evidence, trace_of, write_views


@dataclass(frozen=True, kw_only=True)
class Prejudged:
    """A ``Judge`` with a verdict on latency alone, which counts where it settles the matter."""

    full: RepositoryJudge
    verdict: Verdict
    checked: Callable[[], Verdict | None] = lambda: None
    """The same kernel with its values, which another machine checked; None where nobody was asked."""

    def judge(
        self,
        kernel_path: Path,
        *,
        kernel_rel: str,
        evidence_id: str,
        against: Against | None = None,
        bar: Bar | None = None,
    ) -> Verdict:
        """The verdict there is, where the kernel was refused or is too slow for ``bar``; else a full one."""
        score = self.verdict.score
        settled: Verdict | None = self.verdict
        if score is not None and not (bar is not None and bar(score)):
            settled = self._wrong()
        if settled is not None and settled.conditions == self.conditions(kernel_rel):
            self._show(kernel_path, kernel_rel, evidence_id)
            return settled
        return self.full.judge(kernel_path, kernel_rel=kernel_rel, evidence_id=evidence_id, against=against, bar=bar)

    def _wrong(self) -> Verdict | None:
        """What another machine refused; only what the same program would be refused for again, here too."""
        checked = self.checked()
        return checked if checked is not None and checked.score is None and checked.status in CACHEABLE else None

    def _show(self, kernel: Path, kernel_rel: str, evidence_id: str) -> None:
        """Blame and trace beside the evidence; the compiler's output of a sweep is not kept."""
        root = self.full.root
        make_folders(root, evidence_id)
        request = Request(
            kernel=kernel,
            root=root,
            kernel_rel=kernel_rel,
            conditions=self.verdict.conditions,
            evidence=root / DUMPS / evidence_id,
        )
        write_views(self.verdict, request, trace_of(root / TRACES, evidence_id))

    def conditions(self, kernel_rel: str) -> Conditions:
        return self.full.conditions(kernel_rel)

    def seal(self) -> str:
        return self.full.seal()

    def protected_paths(self) -> Collection[str]:
        return self.full.protected_paths()

    def evidence(self, evidence_id: str) -> str:
        return self.full.evidence(evidence_id)


LANES = 2
"""Candidates that are modelled at once. A compile needs up to several GiB."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One version of the kernel file."""

    text: bytes
    message: str
    """Of its commit."""
    point: Point = field(default_factory=dict)
    """Values of its knobs, where it is a trial of a search."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What candidates of one kernel file are judged with."""

    judge: RepositoryJudge
    kernel: str
    """Path of the kernel file, relative to the top of the repository."""
    lanes: WorkerSlots | None
    """Of this machine; None where a cluster models."""
    cluster: Cluster | None = None
    beside: tuple[str, ...] = ()
    """Files that may differ from HEAD: see ``Idea``."""
    compound: bool = True
    """Whether a candidate may change several things at once."""
    wait_s: float = 0.0
    seen: Callable[[Candidate, Row, bool], None] = lambda _one, _row, _known: None
    """Called with each candidate that has a row; last whether it had one before."""

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
        for blob, one in zip(blobs, candidates, strict=True):
            if blob in found:
                self.seen(one, found[blob], True)
        measured = conditions.evaluator in MEASURED
        found = {**found, **(self._measured(new) if measured else self._modelled(new, found, conditions))}
        return [found[blob] for blob in blobs]

    def _modelled(
        self, new: Mapping[str, Candidate], known: Mapping[str, Row], conditions: Conditions
    ) -> dict[str, Row]:
        """Rows by blob: modelled side by side, and recorded the fastest first."""
        with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
            running = {blob: self._submit(Path(folder, blob), one, conditions) for blob, one in new.items()}
            verdicts = {blob: future.result() for blob, future in running.items()}
        fastest = sorted(verdicts, key=lambda one: _latency(verdicts[one]))
        turned_down = bar(known.get(self._head()[0]))
        scores = {blob: verdicts[blob].score for blob in fastest}
        ahead = [blob for blob, score in scores.items() if score and not (turned_down and turned_down(score))]
        asked = {blob: self._ask(new[blob], conditions, model_only=False) for blob in ahead[1:] if self.cluster}
        try:
            return {
                blob: self._record(
                    new[blob],
                    Prejudged(full=self.judge, verdict=verdicts[blob], checked=partial(_checked, asked.get(blob))),
                )
                for blob in fastest
            }
        finally:
            for future in asked.values():
                future.cancel()

    def _measured(self, new: Mapping[str, Candidate]) -> dict[str, Row]:
        """Rows by blob: what is not faster than HEAD's kernel first, then the fastest; until one is kept, and again."""
        left, rows = dict(new), dict[str, Row]()
        while left:
            timed = self._timed(left)
            for blob in sorted(left, key=lambda one: _promise(timed.get(one))):
                rows[blob] = self._record(left.pop(blob), timed.get(blob, self.judge))
                if rows[blob].decision == Decision.KEPT:  # what is left was timed beside another kernel than HEAD's
                    break
        return rows

    def _timed(self, new: Mapping[str, Candidate]) -> dict[str, Remote]:
        """Judges that have had the cluster time them, each beside HEAD's kernel; none where this machine measures."""
        if not isinstance(self.judge, Remote):
            return {}
        incumbent = self._head()[1]
        history = History(self.root)
        first = comparisons(log.rows(self.root), history.refs.under(EXPERIMENTS)) + 1
        asked = {
            blob: self.judge.ask(one.text, self.kernel, Beside(text=incumbent, test=first + number))
            for number, (blob, one) in enumerate(new.items())
        }
        all_done(asked.values())
        timed = {blob: result for blob, one in asked.items() if (result := one.result())}
        return {blob: replace(self.judge, ahead=TimedAhead(timed=one, beside=incumbent)) for blob, one in timed.items()}

    def _head(self) -> tuple[str, bytes]:
        """The kernel as HEAD has it: its blob and its bytes."""
        history = History(self.root)
        entry = history.objects.entry(history.checks.head().commit, self.kernel)
        return (entry.blob, history.objects.blob(entry.blob)) if entry else ("", b"")

    def _blob(self, candidate: Candidate) -> str:
        return History(self.root).files.store(self.kernel, candidate.text)

    def _submit(self, folder: Path, candidate: Candidate, conditions: Conditions) -> Future[Verdict]:
        """Model it on a lane of this machine, or of the cluster's."""
        if self.cluster is None:
            assert self.lanes is not None
            return self.lanes.submit(partial(self._model, folder, candidate, conditions))
        return self._ask(candidate, conditions, model_only=True)

    def _ask(self, candidate: Candidate, conditions: Conditions, *, model_only: bool) -> Future[Verdict]:
        assert self.cluster is not None
        lock = lock_path(self.root / self.kernel)
        return self.cluster.submit(
            JudgeRequest(
                text=candidate.text,
                kernel=self.kernel,
                lock=paths.read(lock) if paths.exists(lock) else None,
                conditions=conditions,
                chip=self.judge.chip.name,
                remember=self.judge.remember,
                model_only=model_only,
            )
        )

    def _model(self, folder: Path, candidate: Candidate, conditions: Conditions, workers: Workers) -> Verdict:
        """Contract, compile, memory and schedule, and no values."""
        paths.make_folder(folder)
        kernel = folder / Path(self.kernel).name
        paths.write(kernel, candidate.text)
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

    def _record(self, candidate: Candidate, judge: Judge) -> Row:
        idea = Idea(message=candidate.message, text=candidate.text, beside=self.beside, compound=self.compound)
        outcome = run_experiment(
            idea,
            root=self.root,
            kernel=Path(self.kernel),
            judge=judge,
            wait_s=self.wait_s,
        )
        row = outcome.row
        if not speaks_of_the_kernel(Status[row.status]) or outcome.status is Status.BRANCH_MOVED:
            raise Refusal(outcome.status, f"{outcome.reason}; the same command goes on from here")
        self.seen(candidate, row, False)
        prune_evidence(self.root, (row, outcome.incumbent), lambda _: None)
        return row


def known_rows(root: Path, kernel: str, conditions: Conditions) -> Mapping[str, Row]:
    """The newest row of every version of a kernel that was judged here under these conditions, by its blob.

    What one node timed and nobody checked is none.
    """
    return {
        row.kernel_blob: row
        for row in log.trusted(History(root), log.rows(root))
        if row.kernel == kernel
        and conditions_of(row) == conditions
        and speaks_of_the_kernel(Status[row.status])
        and not (row.evaluator in MEASURED and row.status == Status.UNCHECKED.name)
    }


@contextlib.contextmanager
def bench(
    judge: RepositoryJudge,
    kernel: str,
    *,
    one_file: bool,
    lanes: int = LANES,
    cluster: Cluster | None = None,
    **options: Any,
) -> Iterator[Bench]:
    """A bench with lanes of its own, and with children for full verdicts that are kept from one to the next.

    ``one_file``: all candidates are versions made here of one file. ``cluster``: judges in the
    place of these lanes.
    """
    with contextlib.ExitStack() as stack:
        kept: list[Workers] = []

        def function(request: Request, *, workers: Workers | None = None, progress: Progress | None = None) -> Verdict:
            if workers is None and not kept:
                kept.append(stack.enter_context(Workers(judge.chip, keep=True, compiles=is_tpu(judge.evaluator))))
            return judge.function(request, workers=workers or kept[0], progress=progress)

        side = None
        if cluster is None and judge.evaluator not in MEASURED:
            side = stack.enter_context(
                WorkerSlots(lanes, partial(Workers, judge.chip, keep=not one_file, one_file=one_file))
            )
        yield Bench(judge=replace(judge, function=function), kernel=kernel, lanes=side, cluster=cluster, **options)


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


def _promise(judge: Remote | None) -> float:
    """Sorts what may be kept last, and of that the fastest first."""
    paired = judge.ahead.timed.verdict.paired if judge and judge.ahead else None
    return 1 / paired.speedup if paired and paired.answer == FASTER else -1.0


def _checked(future: Future[Verdict] | None) -> Verdict | None:
    """What a node said of a kernel's values; None where none was asked or could say."""
    try:
        return future.result() if future else None
    except (Refusal, CancelledError):
        return None
