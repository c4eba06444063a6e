"""The judge of a repository, as the loop calls it: ``prepare.judge``, its conditions, its seal and its evidence."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from ratchet.exam.candidate import contract
from ratchet.exam.candidate.tracer import TraceRequest
from ratchet.exam.judge import evidence as evidence_room
from ratchet.exam.judge.request import Request
from ratchet.exam.judge.seal import protected_paths, recent_seal, seal
from ratchet.exam.judge.secret import clone_folder
from ratchet.exam.judge.steps import INTERNAL_ERROR, Progress, Silent, internal
from ratchet.exam.judge.workers import Workers
from ratchet.exam.measure import devices
from ratchet.exam.measure.session import BUDGET_SECONDS
from ratchet.exam.problem import problem as problems
from ratchet.exam.problem.floor import floor_of
from ratchet.exam.problem.problem import Problem
from ratchet.loop import log, recorded
from ratchet.loop import refuted as refuted_losses
from ratchet.loop.ledger import writing
from ratchet.loop.series import series_of
from ratchet.process import made, paths
from ratchet.process.boot import home
from ratchet.process.root import Root
from ratchet.tpu.chips import V5E, Chip
from ratchet.tpu.compiler import compile as compiling
from ratchet.values import MEASURED, Against, Bar, Conditions, Row, Verdict
from ratchet.values.loss import Key, Loss, Refuted
from ratchet.values.status import Refusal, Status
from ratchet.view.losses import blame_text
from ratchet.view.xplane import BufferKind, HbmBuffer
from ratchet.view.xspace import trace_path, write_xspace

DUMPS, TRACES = evidence_room.FOLDERS
BLAME = "blame.txt"
"""The blame table of an experiment, beside its dumps."""
LOSSES = "losses.json"
"""Its losses as values, for the hindsight of later experiments."""
TIMELINE = "timeline.json"
"""Its modelled run as a value, without spans and without each chip by itself."""
HLO = "optimized.hlo.pb"
"""The compiled module, among the dumps."""
IGNORE = "*\n!README.md\n"
"""Of an evidence folder, git keeps what it says about itself."""


_MODELLED, _MODELLED_KEPT = "modelled", 4
"""In a clone's own folder: the runs that reports were last made of."""
_MODELLING_S = 1800.0
"""Seconds for which a report waits for another one that models."""


class JudgeFunction(Protocol):
    """``prepare.judge``."""

    def __call__(
        self, request: Request, *, workers: Workers | None = None, progress: Progress | None = None
    ) -> Verdict: ...


@dataclass(frozen=True, kw_only=True)
class RepositoryJudge:
    """The ``Judge`` of the repository whose top is ``root``; ``evaluator`` is one that is there."""

    root: Path
    function: JudgeFunction
    evaluator: str
    budget_s: float = BUDGET_SECONDS
    deep: bool = False
    new_problem: bool = False
    progress: Progress = field(default_factory=Silent)
    remember: bool = False
    """Use the verdict that the same program had before."""
    early: Workers | None = None
    """Of processes that waited, which trace the kernel file already: see ``tracing``."""

    @classmethod
    def modelling(cls, root: Path, function: JudgeFunction, chip: Chip = V5E) -> RepositoryJudge:
        """One that models for ``chip`` and says nothing."""
        return cls(root=root, function=function, evaluator=f"{chip.name}-model")

    def conditions(self, kernel_rel: str) -> Conditions:
        """What a kernel would be judged under now.

        Raises:
          Refusal: ``UNSUPPORTED_PLATFORM`` where there is no such device or compiler.
        """
        problem = problems.read(problems.lock_path(self.root / kernel_rel))
        measured = self.evaluator in MEASURED
        judge = recent_seal(home.judge_root(self.root))
        return Conditions(
            evaluator=self.evaluator,
            chip=devices.device(self.evaluator) if measured else devices.MODELS[self.evaluator],
            compiler=devices.compiler(self.evaluator) if measured else compiling.compiler_version(),
            seal=judge,
            problem=problem.short if problem else "",
            series=series_of(judge),
        )

    def seal(self) -> str:
        """Digest of the files that a verdict follows from."""
        return seal(home.judge_root(self.root))

    @contextlib.contextmanager
    def tracing(self, kernel: Path) -> Iterator[RepositoryJudge]:
        """While the block runs: this judge, for which the file is traced already if processes wait for work.

        It counts under the seal that they were made for, for the same bytes alone. What fails is tried again, and said,
        where it is needed.
        """
        with contextlib.ExitStack() as stack:
            early = None
            with contextlib.suppress(OSError, Refusal):
                if self.evaluator in devices.MODELS and (early := Workers.waiting(self.chip)):
                    stack.enter_context(early)
                    source = paths.read(kernel, contract.MAX_SOURCE_BYTES)
                    early.begin(TraceRequest(source=source, name=kernel.name, chip=self.chip))
            yield replace(self, early=early)

    def protected_paths(self) -> Collection[str]:
        """Files that may not differ from HEAD: a clone's judge. An installed one is in no repository of the user's."""
        return () if home.INSTALLED else protected_paths(self.root)

    def evidence(self, evidence_id: str) -> str:
        """Digest of an experiment's evidence."""
        return evidence_room.digest(self.root, evidence_id)

    def judge(
        self,
        kernel_path: Path,
        *,
        kernel_rel: str,
        evidence_id: str = "",
        against: Against | None = None,
        bar: Bar | None = None,
    ) -> Verdict:
        """The verdict, with the blame table and the modelled run's trace beside its evidence.

        Without an ``evidence_id`` nothing is kept. Anything unexpected is a verdict ``INTERNAL``, so that the turn has
        its row.
        """
        if evidence_id:
            make_folders(self.root, evidence_id)
        request = Request(
            kernel=kernel_path,
            root=self.root,
            kernel_rel=kernel_rel,
            conditions=self.conditions(kernel_rel),
            chip=self.chip,
            evidence=self.root / DUMPS / evidence_id if evidence_id else None,
            capture=self.root / TRACES / evidence_id / "measured" if evidence_id else None,
            against=against,
            bar=None if self.deep else bar,
            budget_s=self.budget_s,
            new_problem=self.new_problem,
            deep=self.deep,
            remember=self.remember,
        )
        try:
            workers = self.early if self.early and self.early.seal == request.conditions.seal else None
            verdict = self.function(request, workers=workers, progress=self.progress)
            if evidence_id:
                write_views(verdict, request, trace_of(self.root / TRACES, evidence_id))
        except (Refusal, OSError):
            raise
        except Exception as error:
            return internal_error(request, error)
        return verdict

    @property
    def chip(self) -> Chip:
        """The chip that is modelled: the attached one where a TPU is timed."""
        return devices.modelled(self.evaluator) or V5E


def across(
    kernel: Path, *, root: Path, kernel_rel: str, function: JudgeFunction, progress: Progress
) -> tuple[Verdict, ...]:
    """A verdict for every chip, on the same bytes; no row, no evidence. A program equal on two chips is executed once.

    A kernel without a frozen problem gets one with the first verdict that passes, as everywhere.
    """
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder, Workers(V5E, keep=True) as workers:
        copy = Path(folder, kernel.name)
        paths.write(copy, paths.read(kernel))
        with_workers = functools.partial(function, workers=workers)
        verdicts = []
        for name in devices.MODELS:
            progress.done(f"for {name}", "", 0.0, True)
            judge = RepositoryJudge(root=root, function=with_workers, evaluator=name, progress=progress)
            verdicts.append(judge.judge(copy, kernel_rel=kernel_rel))
        return tuple(verdicts)


def evaluator(asked: str | None) -> str:
    """What judges: what was asked for, or else a TPU that is attached, or else the model.

    Raises:
      Refusal: ``UNSUPPORTED_PLATFORM`` where there is no such device, or its limits are not known; ``USAGE`` for what
        is no evaluator.
    """
    chosen = asked or devices.preferred()
    if chosen in MEASURED:
        devices.peak(chosen, devices.device(chosen))
    elif chosen not in devices.MODELS:
        known = ", ".join((*MEASURED, *devices.MODELS))
        raise Refusal(Status.USAGE, f"{chosen!r:.80} is no evaluator; wanted one of {known}")
    return chosen


def make_folders(root: Path, evidence_id: str = "") -> None:
    """The folders for evidence, ignored by git, and marks of those of one experiment. What is there stays as it is.

    Raises:
      Refusal: ``LEDGER_UNWRITABLE`` or ``NO_SPACE``.
    """
    top = Root(root)
    for name in (DUMPS, TRACES):
        with writing(name):
            top.make_folder(name)
            if not top.exists(f"{name}/.gitignore"):
                top.write(f"{name}/.gitignore", IGNORE.encode(), flush=False)
            if evidence_id:
                made.mark(top, f"{name}/{evidence_id}")


def prune_evidence(root: Path, rows: Iterable[Row | None], say: Callable[[str], None]) -> None:
    """Remove old evidence but that of ``rows`` and of each kernel's incumbent; says how much went."""
    with contextlib.suppress(Refusal, OSError):  # evidence that stays too long is no reason to fail
        incumbents = {row.kernel: row.id for row in log.rows(root) if row.median_ms and row.in_place}
        keep = {*incumbents.values(), *(row.id for row in rows if row is not None)}
        if gone := evidence_room.prune(root, log.experiments(root), keep=keep):
            most = f"{evidence_room.KEEP_NEWEST} experiments, {evidence_room.MAX_BYTES >> 30} GiB"
            stays = f"{most} and each kernel's incumbent stay"
            say(f"evidence of {len(gone)} older experiment{'s' * (len(gone) > 1)} was removed from {DUMPS}/: {stays}")


def trace_of(folder: Path, name: str) -> Path:
    """Where the modelled run of one verdict goes below ``folder``."""
    return trace_path(folder, name)


def write_views(verdict: Verdict, request: Request, trace: Path) -> None:
    """The blame table and the trace of what was modelled; nothing where nothing was."""
    timeline, dumps = verdict.timeline, request.evidence
    if timeline is None or dumps is None:
        return
    name, source = request.kernel.name, paths.read(request.kernel).decode(errors="replace")
    table = blame_text(timeline, title=verdict.kernel_name, kernel_file=name, source=source)
    paths.make_folder(dumps)  # of a verdict that is remembered, there is no other evidence
    paths.write(dumps / BLAME, (table + "\n").encode())
    paths.write(dumps / LOSSES, recorded.to_bytes(timeline.blame.losses))
    paths.write(dumps / TIMELINE, recorded.to_bytes(recorded.without_spans(timeline)))
    proto = dumps / HLO
    data = paths.read(proto) if paths.exists(proto) else None
    problem = problems.read(request.lock)
    floor = floor_of(problem, request.chip, _useful(verdict, problem)) if problem else None
    write_xspace(
        timeline,
        trace,
        title=verdict.kernel_name,
        flops=floor.flops if floor else None,
        peak_flops=floor.flops / floor.compute_s if floor and floor.compute_s else None,
        hlo_module=data,
        buffers=hbm_buffers(data, verdict.footprint.hbm_bytes) if data and verdict.footprint else (),
    )


def _useful(verdict: Verdict, problem: Problem) -> int:
    """FLOPs that count in the verdict; those of the problem where it has no score."""
    score = verdict.score
    return round(score.tflops * score.latency_ms * 1e9) if score else problem.flops


def hbm_buffers(data: bytes, hbm_bytes: int) -> tuple[HbmBuffer, ...]:
    """Arguments and results of a compiled module as serialised, and what is left of ``hbm_bytes``, of one chip."""
    from ratchet.tpu.dump.hlo import read_hlo  # imports numpy

    module = read_hlo(data, file=HLO)
    result = module.result
    buffers = [
        HbmBuffer(
            kind=BufferKind.ARGUMENT,
            size_bytes=sum(leaf.padded_bytes for leaf in op.types),
            instruction=op.number,
            number=op.parameter or 0,
        )
        for op in module.parameters()
    ]
    shared = {index for index, _ in module.aliases}
    for number, leaf in enumerate(result.types):
        index = (number,) if result.is_tuple else ()
        if index not in shared:
            size, where = leaf.padded_bytes, result.number
            buffers.append(HbmBuffer(kind=BufferKind.RESULT, size_bytes=size, instruction=where, shape_index=index))
    left = hbm_bytes - sum(buffer.size_bytes for buffer in buffers)
    if left > 0:
        buffers.append(HbmBuffer(kind=BufferKind.TEMPORARY, size_bytes=left, instruction=result.number))
    return tuple(buffers)


def refuted(root: Path, row: Row) -> Mapping[Key, Refuted]:
    """What experiments before ``row`` removed without a gain, as far as their evidence is still there."""

    def losses(name: str) -> tuple[Loss, ...]:
        return recorded.from_file(tuple[Loss, ...], root / DUMPS / name / LOSSES) or ()  # type: ignore[arg-type]

    return refuted_losses.refuted(log.rows(root), kernel=row.kernel, like=row, losses=losses)


def modelled_again(
    root: Path, row: Row, source: bytes, function: JudgeFunction, say: Callable[[str], None]
) -> Path | None:
    """The modelled run of a row's kernel, made anew without its values: no row, and no evidence of an experiment.

    It is kept in the clone's own folder until another is made, by judge and kernel.

    Args:
      root: the repository's top.
      row: a row with a latency.
      source: the kernel file's bytes.
      say: takes a line for the user: that modelling may take minutes, or why it failed.

    Returns:
      A folder with ``hlo_dumps`` and ``profile_data`` as evidence has them; None where it cannot be modelled.
    """
    name = f"{row.chip}-model"
    if name not in devices.MODELS:
        return None
    judge = RepositoryJudge(root=root, function=function, evaluator=name)
    own = Root(clone_folder(root))
    made_by = hashlib.sha256(f"{judge.seal()} {row.kernel_blob} {row.kernel} {name}".encode()).hexdigest()[:16]
    folder = own.path / _MODELLED / made_by
    if paths.exists(folder / DUMPS / TIMELINE):
        return folder
    say(
        f"modelling {row.kernel} for its cycles, minutes for a large kernel: its evidence is not on this disk "
        "(--no-judge leaves it out)"
    )
    new = f"{_MODELLED}.new"  # renamed where it is whole
    try:
        with (
            own.locked(f"{_MODELLED}.lock", wait_s=_MODELLING_S),
            tempfile.TemporaryDirectory(prefix="ratchet-") as work,
        ):
            if paths.exists(folder / DUMPS / TIMELINE):  # by who held the lock before
                return folder
            own.remove(new)  # of a run that was killed
            try:
                kernel = Path(work, Path(row.kernel).name)
                paths.write(kernel, source)
                request = Request(
                    kernel=kernel,
                    root=root,
                    kernel_rel=row.kernel,
                    conditions=judge.conditions(row.kernel),
                    chip=judge.chip,
                    evidence=own.path / new / DUMPS,
                    model_only=True,
                )
                verdict = function(request)
                if verdict.timeline is None:
                    raise Refusal(verdict.status, f"{verdict.status.name}: {verdict.reason}")
                write_views(verdict, request, trace_of(own.path / new / TRACES, row.id))
                own.make_folder(_MODELLED)
                own.rename(new, f"{_MODELLED}/{made_by}")
                ages = [
                    (state.st_mtime, name)
                    for name in own.names(_MODELLED)
                    if (state := own.state(f"{_MODELLED}/{name}"))
                ]
                for _, old in sorted(ages)[:-_MODELLED_KEPT]:  # another report may still read a newer one
                    own.remove(f"{_MODELLED}/{old}")
            finally:
                own.remove(new)
    except (Refusal, OSError) as error:
        say(f"{row.kernel} could not be modelled: {error}")
        return None
    return folder


def internal_error(request: Request, error: Exception) -> Verdict:
    """The verdict where the judge itself failed outside its steps; the traceback is evidence."""
    if request.evidence is not None:
        paths.make_folder(request.evidence)
        file = request.evidence / INTERNAL_ERROR
        before = paths.read(file) if paths.is_file(file) else b""
        paths.write(file, before + "".join(traceback.format_exception(error)).encode())
    return unscored(request, Status.INTERNAL, internal(error))


def unscored(request: Request, status: Status, reason: str, *, source_sha256: str = "") -> Verdict:
    """The verdict on a request of which no step could be run."""
    return Verdict(
        status=status,
        reason=reason,
        kernel=request.kernel_rel,
        kernel_name="",
        conditions=request.conditions,
        score=None,
        steps=(),
        source_sha256=source_sha256,
        seconds=0.0,
    )
