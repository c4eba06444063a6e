"""The judge of a run on a cluster: here where kernels are modelled, on a node's device where they are measured.

Nothing is kept on the word of one node: what it timed as faster is timed again, by this machine's own device or by
another node, and that verdict counts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from ratchet.exam.judge.measured import TIMINGS
from ratchet.exam.measure import devices
from ratchet.exam.measure.session import conclusion
from ratchet.exam.measure.stats import FASTER
from ratchet.exam.problem import problem as problems
from ratchet.loop.history import History
from ratchet.loop.series import series_of
from ratchet.process import paths
from ratchet.process.boot.home import PROGRAM
from ratchet.search.cluster import Cluster, connected
from ratchet.search.protocol import Beside, Device, JudgeRequest, Timed
from ratchet.tpu.chips import CHIPS, V5E, Chip
from ratchet.values import MEASURED, Against, Bar, Conditions, Verdict
from ratchet.values.status import Refusal, Status
from ratchet.wiring import DUMPS, RepositoryJudge, evaluator, make_folders


@dataclass(frozen=True, kw_only=True)
class TimedAhead:
    """What was measured before its turn, beside this incumbent."""

    timed: Timed
    beside: bytes


@dataclass(frozen=True, kw_only=True)
class Remote(RepositoryJudge):
    """A ``Judge`` whose kernels are timed on a device of the cluster's. Rows, commits and decisions are made here."""

    cluster: Cluster
    device: Device
    ahead: TimedAhead | None = None
    """Of the kernel that is judged next. It counts if HEAD's kernel is still the one it was timed beside."""

    def conditions(self, kernel_rel: str) -> Conditions:
        """What a kernel would be judged under now: those of the node's device, under the seal of this clone."""
        problem = problems.read(problems.lock_path(self.root / kernel_rel))
        return Conditions(
            evaluator=self.evaluator,
            chip=self.device.chip,
            compiler=self.device.compiler,
            seal=self.seal(),
            problem=problem.short if problem else "",
            series=series_of(self.seal()),
        )

    @property
    def chip(self) -> Chip:
        """The chip that is modelled beside: the device, where that is a TPU."""
        return CHIPS[self.device.chip] if self.evaluator == "tpu" else V5E

    def judge(
        self,
        kernel_path: Path,
        *,
        kernel_rel: str,
        evidence_id: str = "",
        against: Against | None = None,
        bar: Bar | None = None,
    ) -> Verdict:
        """The verdict of a node, with its timings as evidence; where it could be kept, that of a second measurement.

        UNCHECKED where nobody could make one.

        Raises:
          Refusal: as ``Cluster.submit``; NOT_FOUND where no problem is frozen.
        """
        beside = Beside(text=paths.read(against.kernel), test=against.test) if against else None
        text = paths.read(kernel_path)
        if self.ahead and beside and self.ahead.beside == beside.text:
            said: Timed | None = self.ahead.timed
        else:
            said = self.ask(text, kernel_rel, beside).result()
        assert said is not None
        verdict = _concluded(said.verdict, beside)
        if _could_be_kept(verdict) and (beside or not self._is_heads(text, kernel_rel)):
            if self._has_device():
                return super().judge(kernel_path, kernel_rel=kernel_rel, evidence_id=evidence_id, against=against)
            again = self.ask(text, kernel_rel, beside, without=said.node).result()
            verdict = _concluded(again.verdict, beside) if again else self._unchecked(verdict, said.node)
        if evidence_id and verdict.samples:
            make_folders(self.root, evidence_id)
            folder = self.root / DUMPS / evidence_id
            paths.make_folder(folder)
            paths.write(folder / TIMINGS, (json.dumps(dataclasses.asdict(verdict.samples), indent=1) + "\n").encode())
        return verdict

    def _is_heads(self, text: bytes, kernel_rel: str) -> bool:
        """Whether this is HEAD's kernel, which nothing is kept of."""
        history = History(self.root)
        entry = history.objects.entry(history.checks.head().commit, kernel_rel)
        return entry is not None and history.objects.blob(entry.blob) == text

    def _has_device(self) -> bool:
        """Whether this machine has the device that the nodes measure on."""
        try:
            here = Device(chip=devices.device(self.evaluator), compiler=devices.compiler(self.evaluator))
        except Refusal:
            return False
        return here == self.device

    def _unchecked(self, verdict: Verdict, node: str) -> Verdict:
        what = f"node {node[:8]} alone timed it as faster, and it was not checked again: no other node measures on "
        todo = f"{self.device.chip}, nor this machine; `{PROGRAM} node --measures {self.evaluator}` on another one"
        return dataclasses.replace(verdict, status=Status.UNCHECKED, reason=what + todo)

    def ask(self, text: bytes, kernel_rel: str, beside: Beside | None, *, without: str = "") -> Future[Timed | None]:
        """Have a node measure it, alone or beside the incumbent; one that is not ``without``, or None.

        Raises:
          Refusal: NOT_FOUND where no problem is frozen: a node freezes none.
        """
        lock = problems.lock_path(self.root / kernel_rel)
        if not paths.exists(lock):
            message = f"{kernel_rel} has no frozen problem: judge it here once, then measure it on the cluster"
            raise Refusal(Status.NOT_FOUND, message)
        return self.cluster.time(
            JudgeRequest(
                text=text,
                kernel=kernel_rel,
                lock=paths.read(lock),
                conditions=self.conditions(kernel_rel),
                chip=self.chip.name,
                remember=False,
                model_only=False,
                beside=beside,
            ),
            without=without,
        )


def _concluded(verdict: Verdict, beside: Beside | None) -> Verdict:
    """With what its launches say, at the level of today's count, and not what the node says of them."""
    paired = conclusion(verdict.samples, test=beside.test) if beside and verdict.samples else None
    return dataclasses.replace(verdict, paired=paired)


def _could_be_kept(verdict: Verdict) -> bool:
    return verdict.score is not None and (verdict.paired is None or verdict.paired.answer == FASTER)


@contextlib.contextmanager
def judges(
    judge: RepositoryJudge, address: str, *, say: Callable[[str], None]
) -> Iterator[tuple[RepositoryJudge, Cluster | None]]:
    """The judge of a run, and the cluster that judges for it; this machine alone where there is no ``address``.

    Raises:
      Refusal: as ``connected``, as ``Cluster.device``, and as ``wiring.evaluator`` without an ``address``.
    """
    if not address:
        evaluator(judge.evaluator)  # raises where this machine has no such device
        yield judge, None
        return
    measures = judge.evaluator if judge.evaluator in MEASURED else ""
    with connected(address, say=say, measures=measures) as cluster:
        if not measures:
            yield judge, cluster
            return
        device = cluster.device()
        say(f"measured on {measures}: {device.chip}, {device.compiler}")
        here = {one.name: getattr(judge, one.name) for one in dataclasses.fields(judge)}
        yield Remote(**here, cluster=cluster, device=device), cluster
