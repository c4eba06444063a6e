"""The judge of a run on a cluster: here where kernels are modelled, on a node's device where they are measured."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from ratchet.exam.judge.measured import TIMINGS
from ratchet.exam.measure.session import conclusion
from ratchet.exam.problem import problem as problems
from ratchet.loop.series import series_of
from ratchet.process import paths
from ratchet.search.cluster import Cluster, connected
from ratchet.search.protocol import Beside, Device, JudgeRequest
from ratchet.tpu.chips import CHIPS, V5E, Chip
from ratchet.values import MEASURED, Against, Bar, Conditions, Verdict
from ratchet.values.status import Refusal, Status
from ratchet.wiring import DUMPS, RepositoryJudge, evaluator, make_folders


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A verdict that was measured before its turn, beside this incumbent."""

    verdict: Verdict
    beside: bytes


@dataclass(frozen=True, kw_only=True)
class Remote(RepositoryJudge):
    """A ``Judge`` whose kernels are timed on a device of the cluster's. Rows, commits and decisions are made here."""

    cluster: Cluster
    device: Device
    timed: Timed | None = None
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
        """The verdict of a node, with its timings as evidence.

        Raises:
          Refusal: as ``Cluster.submit``; NOT_FOUND where no problem is frozen.
        """
        beside = Beside(text=paths.read(against.kernel), test=against.test) if against else None
        if self.timed and beside and self.timed.beside == beside.text:
            verdict = self.timed.verdict
            if verdict.paired and verdict.samples:  # launches decide at any level: it is the one of today's count
                verdict = dataclasses.replace(verdict, paired=conclusion(verdict.samples, test=beside.test))
        else:
            verdict = self.ask(paths.read(kernel_path), kernel_rel, beside).result()
        if evidence_id and verdict.samples:
            make_folders(self.root, evidence_id)
            folder = self.root / DUMPS / evidence_id
            paths.make_folder(folder)
            paths.write(folder / TIMINGS, (json.dumps(dataclasses.asdict(verdict.samples), indent=1) + "\n").encode())
        return verdict

    def ask(self, text: bytes, kernel_rel: str, beside: Beside | None) -> Future[Verdict]:
        """Have a node measure it, alone or beside the incumbent.

        Raises:
          Refusal: NOT_FOUND where no problem is frozen: a node freezes none.
        """
        lock = problems.lock_path(self.root / kernel_rel)
        if not paths.exists(lock):
            message = f"{kernel_rel} has no frozen problem: judge it here once, then measure it on the cluster"
            raise Refusal(Status.NOT_FOUND, message)
        return self.cluster.submit(
            JudgeRequest(
                text=text,
                kernel=kernel_rel,
                lock=paths.read(lock),
                conditions=self.conditions(kernel_rel),
                chip=self.chip.name,
                remember=False,
                model_only=False,
                beside=beside,
            )
        )


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
