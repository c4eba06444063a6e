"""A repository whose kernel is its constants, a judge that computes what they are worth, and searches of it."""

from __future__ import annotations

import contextlib
import math
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ratchet.exam.judge.request import Request
from ratchet.exam.judge.workers import WorkerSlots
from ratchet.exam.measure.session import conclusion
from ratchet.kernelfile.knobs import values
from ratchet.loop.placed import committed
from ratchet.search.candidates import Bench, Candidate, baseline
from ratchet.search.cluster import Cluster
from ratchet.search.protocol import Device, DeviceRequest, JudgeRequest
from ratchet.search.remote import Remote
from ratchet.search.run import Knobs, Limits, Result, Search
from ratchet.search.space import space_of
from ratchet.search.study import opened, study_id
from ratchet.values import Conditions, Launch, Row, Samples, Score, Verdict
from ratchet.values.program import Footprint
from ratchet.values.status import Refusal, Status
from ratchet.wiring import RepositoryJudge
from tests.loop.killer import arm  # noqa: F401
from tests.loop.stage import CONDITIONS, Stage

KERNEL = """BQ = 64  # tune: 64, 128, 256, 512
BKV = 64  # tune: 64, 128, 256, 512
SKIP = False  # tune: False, True
# where: BQ * BKV <= 2**17
"""
LIMIT = 2**16


def stage(root: Path, text: str = KERNEL) -> Stage:
    """A repository with one commit and a problem."""
    made = Stage.new(root)
    made.write(text)
    (made.root / ".gitignore").write_text("hlo_dumps/\nprofile_data/\n.ratchet/\n")
    made.git("add", ".")
    made.git("commit", "-qm", "the kernel")
    return made


def latency(of: dict[str, Any]) -> float:
    """Best at BQ 256, BKV 128, SKIP, where values are wrong with BQ 512."""
    return 1 + abs(math.log2(of["BQ"]) - 8) + 2 * abs(math.log2(of["BKV"]) - 7) + 0.5 * (not of["SKIP"])


def function(request: Request, *, workers: object = None, progress: object = None) -> Verdict:
    """``prepare.judge``, of such a kernel."""
    try:
        of = values(request.kernel.read_bytes(), "kernel.py")
    except Refusal as refusal:
        return made(request, refusal.status, refusal.message)
    time = latency(of)
    need = of["BQ"] * of["BKV"]
    status = Status.UNCHECKED if request.model_only else Status.PASS
    if need > LIMIT:
        status = Status.VMEM_OVERFLOW
    elif of["BQ"] == 512 and not request.model_only:
        status = Status.WRONG_VALUES
    fits = status is not Status.VMEM_OVERFLOW
    footprint = Footprint(
        vmem_bytes=need,
        vmem_limit_bytes=LIMIT,
        vmem_buffers=(),
        hbm_bytes=1,
        hbm_limit_bytes=2,
        spill_stores=0,
        spill_loads=0,
    )
    score = Score(score=100 / time, latency_ms=time, util_pct=50.0, tflops=1.0, regime="compute-bound", bw_util_pct=1.0)
    counts = status in (Status.PASS, Status.UNCHECKED)
    said = "as its constants say"
    return made(request, status, said, score=score if counts else None, footprint=footprint if fits else None)


def made(request: Request, status: Status, reason: str, **more: Any) -> Verdict:
    fixed = {"kernel_name": "fake", "score": None, "steps": (), "source_sha256": "", "seconds": 0.1}
    about = {"kernel": request.kernel_rel, "conditions": request.conditions}
    return Verdict(status=status, reason=reason, **{**fixed, **about, **more})


class Children:
    """No children."""

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        return


class FixedJudge(RepositoryJudge):
    """Under conditions that take no time to find out."""

    def conditions(self, kernel_rel: str) -> Conditions:
        return CONDITIONS

    def seal(self) -> str:
        return CONDITIONS.seal


class FixedRemote(Remote):
    """One whose problem and seal take no time to find out."""

    def conditions(self, kernel_rel: str) -> Conditions:
        device = self.device
        return replace(CONDITIONS, evaluator=self.evaluator, chip=device.chip, compiler=device.compiler)

    def seal(self) -> str:
        return CONDITIONS.seal


def measured(asked: JudgeRequest) -> Verdict:
    """What a node says that times such a kernel: launches that agree to a part in a thousand."""
    here = latency(values(asked.text, "kernel.py"))
    there = latency(values(asked.beside.text, "kernel.py")) if asked.beside else None
    launches = tuple(
        Launch(candidate_ms=(here * (1 + number / 1e4),) * 30, incumbent_ms=(there,) * 30 if there is not None else ())
        for number in range(12)
    )
    samples = Samples(evaluator=asked.conditions.evaluator, device=asked.conditions.chip, launches=launches, seconds=1)
    return Verdict(
        status=Status.PASS,
        reason="timed",
        kernel=asked.kernel,
        kernel_name="fake",
        conditions=asked.conditions,
        score=Score(score=100 / here, latency_ms=here, util_pct=50, tflops=1, regime="compute-bound", bw_util_pct=1),
        steps=(),
        samples=samples,
        paired=conclusion(samples, test=asked.beside.test) if asked.beside else None,
        source_sha256="",
        seconds=0.1,
    )


DEVICE = Device(chip="a device", compiler="its compiler")


def answer(asked: JudgeRequest | DeviceRequest, *, times_faster: float = 1.0) -> Verdict | Device:
    """Of a node that measures; one that lies says so many times faster than it is."""
    if isinstance(asked, DeviceRequest):
        return DEVICE
    verdict = measured(asked)
    launches = verdict.samples.launches if verdict.samples else ()
    lies = tuple(replace(one, candidate_ms=tuple(t / times_faster for t in one.candidate_ms)) for one in launches)
    samples = replace(verdict.samples, launches=lies) if verdict.samples else None
    said = conclusion(samples, test=asked.beside.test) if samples and asked.beside else None
    return replace(verdict, samples=samples, paired=said)


def timed_rows(root: Path, cluster: Cluster, *texts: str) -> list[Row]:
    """The rows of candidates that a cluster measures, behind that of HEAD's kernel; all have a frozen problem."""
    lock = root / "kernel.py.lock.json"
    if not lock.exists():
        lock.write_text("a problem")
        subprocess.run(["git", "add", lock.name], cwd=root, check=True)
        subprocess.run(["git", "commit", "-qm", "the problem"], cwd=root, check=True)
    here = replace(judge(root), evaluator="cpu")
    remote = FixedRemote(
        **{one.name: getattr(here, one.name) for one in fields(here) if one.init},
        cluster=cluster,
        device=cluster.device(),
    )
    first = []
    with contextlib.suppress(Refusal):  # it was judged before
        first = [baseline(remote, Path("kernel.py"), wait_s=0, say=lambda _line: None)]
    bench = Bench(judge=remote, kernel="kernel.py", lanes=None, cluster=cluster)
    return [*first, *bench.rows([Candidate(text=text.encode(), message="try") for text in texts])]


def judge(root: Path, of: Callable[..., Verdict] = function) -> RepositoryJudge:
    return FixedJudge.modelling(root, of)


def search(
    root: Path,
    *,
    how: str = "tpe",
    budget: int = 12,
    of: Callable[..., Verdict] = function,
    cluster: Cluster | None = None,
) -> Result:
    """One search, in this process."""
    made = judge(root, of)
    _, source = committed(root, Path("kernel.py"), wait_s=0, progress=lambda _line: None)
    space = space_of(source, "kernel.py", [], [])
    name = study_id(source, space, how, made.conditions("kernel.py"))
    with ExitStack() as stack:
        study = stack.enter_context(opened(root, name))
        lanes = stack.enter_context(WorkerSlots(2, Children))  # type: ignore[arg-type]
        bench = Bench(judge=made, kernel="kernel.py", lanes=lanes, cluster=cluster)
        course = Knobs(
            source=source,
            name="kernel.py",
            space=space,
            how=how,
            start=study.start(space, space.nearest(space.constants)),
            study=name,
        )
        limits = Limits(trials=budget)
        return Search(course=course, limits=limits, rows=bench.rows, record=lambda ones: study.add(space, ones)).run()
