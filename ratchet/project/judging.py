"""The judge of a project, as the loop calls it: every problem by ``prepare.judge``, and one verdict for all.

The score is the geometric mean, and so are the other numbers. A candidate that makes one problem slower than HEAD's
file by more than the project allows is no better, whatever it wins elsewhere.

Nothing of the kernel's runs beside the reference: the kernel is exported by one jailed process for each problem, and
the reference is traced by another. The file that may be edited is not among those that the reference imports.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ratchet.exam.candidate import configuration, target
from ratchet.exam.candidate.source_closure import Read, SourceClosure, check_tops, closure_of, import_chain
from ratchet.exam.candidate.target import Case, Target
from ratchet.exam.candidate.tracer import ProjectKernel
from ratchet.exam.judge.request import Request
from ratchet.exam.problem.problem import MAX_LOCK_BYTES, decode, lock_path
from ratchet.process import paths
from ratchet.process.sandbox.child import packages
from ratchet.project.table import Project, described
from ratchet.tpu.chips import CHIPS
from ratchet.values import Against, Band, Bar, Conditions, ProblemCost, Score, Step, Verdict
from ratchet.values.status import Refusal, Status
from ratchet.wiring import DUMPS, TRACES, RepositoryJudge, make_folders, trace_of, unscored, write_views


class Named(NamedTuple):
    """One problem's verdict."""

    case: Case
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class ProjectJudge:
    """The loop's ``Judge`` of one project."""

    project: Project
    own: RepositoryJudge
    """Judges one problem: its root is the project's, its ``evaluator`` that of the first problem's chip."""
    read: Read
    """Reads the user's files, by path relative to the repository: from HEAD for an experiment."""

    def conditions(self, kernel_rel: str) -> Conditions:
        """What the project would be judged under now: its table and all files but the editable one are part of it.

        Raises:
          Refusal: as ``ratchet.exam.candidate.source_closure.closure_of``.
        """
        lock = lock_path(self.project.root / kernel_rel)
        frozen = paths.read(lock) if paths.is_file(lock) else b""
        files = "".join(bundle.digest(without=[self._edited]) for bundle in self._bundles(None))
        text = json.dumps(self.project.plain(), sort_keys=True, default=str)
        whole = hashlib.sha256(frozen + files.encode() + text.encode()).hexdigest()[:16]
        return dataclasses.replace(self.own.conditions(_NOT_THERE), problem=whole if frozen else "")

    def seal(self) -> str:
        """As ``RepositoryJudge.seal``."""
        return self.own.seal()

    def protected_paths(self) -> Collection[str]:
        """As ``RepositoryJudge.protected_paths``."""
        return self.own.protected_paths()

    def evidence(self, evidence_id: str) -> str:
        """As ``RepositoryJudge.evidence``."""
        return self.own.evidence(evidence_id)

    def judge(
        self,
        kernel_path: Path,
        *,
        kernel_rel: str,
        evidence_id: str = "",
        against: Against | None = None,
        bar: Bar | None = None,
    ) -> Verdict:
        """One verdict for all problems; ``kernel_path`` holds the editable file's bytes."""
        del against, bar  # the bar is one for all problems together
        project = self.project
        if evidence_id:
            make_folders(project.root, evidence_id)
        evidence = project.root / DUMPS / evidence_id if evidence_id else None
        with _spread(project, new=self.own.new_problem) as folder:
            named = list(self.each(kernel_path, folder, evidence))
            verdict = together(named, kernel_rel=kernel_rel, source=paths.read(kernel_path))
            if rest := [case.name for case in project.cases[len(named) :]]:
                verdict = dataclasses.replace(verdict, notes=(*verdict.notes, f"not begun: {', '.join(rest)}"))
            if verdict.status is Status.PASS:
                verdict = dataclasses.replace(verdict, problems=self._compared(named, kernel_path, folder))
                _collect(project, folder)
        return dataclasses.replace(verdict, conditions=self.conditions(kernel_rel))

    def each(self, kernel: Path, folder: Path, evidence: Path | None = None) -> Iterator[Named]:
        """The verdicts on the problems, in their order, until one is no PASS. Their locks are in ``folder``."""
        for case in self.project.cases:
            named = self._one(case, kernel, folder, evidence / case.name if evidence else None)
            yield named
            if named.verdict.status is not Status.PASS:
                return

    def _one(self, case: Case, kernel: Path, folder: Path, evidence: Path | None, *, model_only: bool = False) -> Named:
        """The verdict on one problem. Whatever is wrong with the kernel is its status."""
        source = paths.read(kernel)
        request = Request(
            kernel=kernel,
            root=self.project.root,
            kernel_rel=self.project.editable,
            conditions=dataclasses.replace(
                self.own.conditions(_NOT_THERE), evaluator=f"{case.chip}-model", chip=case.chip
            ),
            chip=CHIPS[case.chip],
            evidence=evidence,
            lock_file=_lock_of(folder, case.name),
            deep=self.own.deep,
            model_only=model_only,
        )
        try:
            given = self._given(case, source)
        except Refusal as refusal:
            digest = hashlib.sha256(source).hexdigest()
            return Named(case, unscored(request, refusal.status, refusal.message, source_sha256=digest))
        verdict = self.own.function(dataclasses.replace(request, project=given), progress=self.own.progress)
        if evidence is not None:
            write_views(verdict, request, trace_of(self.project.root / TRACES / evidence.parent.name, case.name))
        return Named(case, verdict)

    def _given(self, case: Case, source: bytes) -> ProjectKernel:
        """A problem with its kernel exported. Raises Refusal as ``target.export``, and ``FORBIDDEN``."""
        project = self.project
        kernel, reference = self._bundles(source, case)
        if self._edited in reference.files:
            named = [project.reference, *self._generators([case])]
            path = " -> ".join(import_chain(reference, [one.module for one in named], self._edited))
            message = f"{self._edited} may be edited, and the reference or its inputs import it: {path}"
            raise Refusal(Status.FORBIDDEN, f"{message}. Move them to files that do not, in another package if need be")
        made = target.export(project.kernel, case, files=kernel, python=project.python or None)
        problem = {**described(project, case), "jax_version": made.jax_version}
        return ProjectKernel(program=made.program, problem=problem, files=reference)

    def _bundles(self, source: bytes | None, only: Case | None = None) -> tuple[SourceClosure, SourceClosure]:
        """What the kernel imports, and what the reference does; with ``source`` as the editable file."""
        project = self.project
        prefix = project.source.relative_to(project.root).as_posix()
        folder = "" if prefix == "." else f"{prefix}/"

        def read(path: str) -> bytes | None:
            return source if source is not None and path == self._edited else self.read(f"{folder}{path}")

        generators = self._generators((only,) if only else project.cases)
        others = {
            (project.root / name).relative_to(project.source).as_posix(): content
            for name in configuration.matching(project.root, project.include)
            if (project.root / name).is_relative_to(project.source) and (content := self.read(name)) is not None
        }

        def bundle(*targets: Target) -> SourceClosure:
            made = closure_of(read, [one.module for one in targets if one.source == project.source], others)
            check_tops(made, packages())
            return made

        return bundle(project.kernel, *generators), bundle(project.reference, *generators)

    def _generators(self, cases: Sequence[Case]) -> list[Target]:
        return [target.parse_generator(case.generator, self.project.kernel) for case in cases if case.generator]

    @property
    def _edited(self) -> str:
        """The editable file, relative to the source folder; a path of none of its files if it is outside."""
        file = self.project.root / self.project.editable
        inside = file.is_relative_to(self.project.source)
        return file.relative_to(self.project.source).as_posix() if inside else f"/{self.project.editable}"

    def _compared(self, named: Sequence[Named], candidate: Path, folder: Path) -> tuple[ProblemCost, ...]:
        """Each problem's cost, beside that of HEAD's file where that is another one."""
        costs, before = map(_cost, named), self.read(self.project.editable)
        if before is None or before == paths.read(candidate):
            return tuple(costs)
        with tempfile.TemporaryDirectory(prefix="ratchet-") as temporary:
            kernel = Path(temporary, Path(self.project.editable).name)
            paths.write(kernel, before)
            olds = [self._one(one.case, kernel, folder, None, model_only=True).verdict.score for one in named]
        allowed = self.project.max_slowdown
        return tuple(
            dataclasses.replace(cost, before_ms=old.latency_ms if old else None, allowed_share=allowed)
            for cost, old in zip(costs, olds, strict=True)
        )


_NOT_THERE = ".ratchet/none"
"""A kernel without a lock of its own: a project's lock is another file."""


def together(named: Sequence[Named], *, kernel_rel: str, source: bytes) -> Verdict:
    """One verdict of several: the first that is no PASS, or geometric means."""
    last = named[-1].verdict
    scores = [one.verdict.score for one in named if one.verdict.score is not None]
    passed = last.status is Status.PASS
    notes = [note for one in named for note in one.verdict.notes]
    footprints = [one.verdict.footprint for one in named if one.verdict.footprint]
    return Verdict(
        status=last.status,
        reason=f"{len(named)} problems, correct and modelled" if passed else f"{named[-1].case.name}: {last.reason}",
        kernel=kernel_rel,
        kernel_name=last.kernel_name.removesuffix(f"_{named[-1].case.name}"),
        conditions=last.conditions,
        score=mean(scores) if passed else None,
        steps=tuple(
            Step(name=f"{one.case.name}: {step.name}", status=step.status, seconds=step.seconds, summary=step.summary)
            for one in named
            for step in one.verdict.steps
        ),
        footprint=max(footprints, key=lambda one: one.vmem_bytes, default=None),
        notes=tuple(dict.fromkeys(notes)),
        source_sha256=hashlib.sha256(source).hexdigest(),
        seconds=sum(one.verdict.seconds for one in named),
        problems=tuple(map(_cost, named)),
    )


def mean(scores: Sequence[Score]) -> Score:
    """Geometric means of scores; the waiting has the mean share of the latency."""
    latency = _geometric([score.latency_ms for score in scores])
    bands = [score.band for score in scores if score.band]
    low, high = ([getattr(band, end) for band in bands] for end in ("low_ms", "high_ms"))
    return Score(
        score=_geometric([score.score for score in scores]),
        latency_ms=latency,
        util_pct=_geometric([score.util_pct for score in scores]),
        tflops=_geometric([score.tflops for score in scores]),
        regime=" and ".join(dict.fromkeys(score.regime for score in scores)),
        bw_util_pct=_geometric([score.bw_util_pct for score in scores]),
        wait_ms=latency * sum(score.wait_ms / score.latency_ms for score in scores) / len(scores),
        band=Band(
            bound_by=" and ".join(dict.fromkeys(band.bound_by for band in bands)),
            low_ms=_geometric(low),
            high_ms=_geometric(high),
        )
        if len(bands) == len(scores)
        else None,
    )


def _geometric(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if all(value > 0 for value in values) else 0.0


def _cost(one: Named) -> ProblemCost:
    score = one.verdict.score
    return ProblemCost(
        name=one.case.name,
        chip=one.case.chip,
        status=one.verdict.status,
        latency_ms=score.latency_ms if score else None,
        util_pct=score.util_pct if score else None,
    )


def read_locks(lock: Path) -> dict[str, bytes]:
    """Each problem's own lock by its name, of the one file beside the editable one; none where there is no file.

    Raises:
      Refusal: ``PROBLEM_CHANGED`` if it is not what is written after a verdict.
    """
    if not paths.exists(lock):
        return {}
    try:
        data = paths.read(lock, MAX_LOCK_BYTES)
        locks = {name: _encoded(document) for name, document in json.loads(data)["problems"].items()}
        for name, one in locks.items():
            decode(one, f"{lock.name}: {name}")
        if _together(locks) != data:
            raise ValueError("it was edited or reformatted")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refusal(Status.PROBLEM_CHANGED, f"{lock.name} cannot be read ({error}); restore it with git") from None
    return locks


def _together(locks: Mapping[str, bytes]) -> bytes:
    return _encoded({"problems": {name: json.loads(data) for name, data in sorted(locks.items())}})


def _encoded(document: object) -> bytes:
    """As ``ratchet.exam.problem.problem.encode`` writes it."""
    return (json.dumps(document, indent=1, ensure_ascii=True) + "\n").encode()


def _lock_of(folder: Path, name: str) -> Path:
    """Where one problem's lock is while it is judged."""
    return lock_path(folder / name.replace("/", "_"))


@contextmanager
def _spread(project: Project, *, new: bool) -> Iterator[Path]:
    """A folder with the frozen problems, one lock each; empty where they are to be frozen anew."""
    frozen = {} if new else read_locks(lock_path(project.root / project.editable))
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        for name in frozen.keys() & {case.name for case in project.cases}:
            paths.write(_lock_of(Path(folder), name), frozen[name])
        yield Path(folder)


def _collect(project: Project, folder: Path) -> None:
    """Write the frozen problems back where one is new."""
    lock = lock_path(project.root / project.editable)
    files = {case.name: _lock_of(folder, case.name) for case in project.cases}
    made = {name: paths.read(file) for name, file in files.items() if paths.is_file(file)}
    try:
        same = read_locks(lock) == made
    except Refusal:
        same = False
    if not same:
        paths.write(lock, _together(made), flush=True)
