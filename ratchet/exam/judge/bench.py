"""What one verdict is made with: children, a folder for evidence, and the evaluators that its conditions name."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ratchet.exam.candidate import tracer
from ratchet.exam.judge import freezing, verdict_cache
from ratchet.exam.judge.correctness import Examiner
from ratchet.exam.judge.evidence import keep
from ratchet.exam.judge.measured import Measured
from ratchet.exam.judge.modelled import Modelled
from ratchet.exam.judge.request import Request
from ratchet.exam.judge.secret import clone_folder, secret_of
from ratchet.exam.judge.steps import INTERNAL_ERROR, Pending, Steps
from ratchet.exam.judge.workers import Workers
from ratchet.exam.measure import devices
from ratchet.exam.problem import problem as problems
from ratchet.exam.problem.problem import Problem, encode
from ratchet.process import made, paths
from ratchet.process.root import Root
from ratchet.process.sandbox.child import Child
from ratchet.tpu.compiler import compile as compiling
from ratchet.values import MEASURED, Artefact, Bar, Parity, Timeline, Verdict
from ratchet.values.encoding import encode as encoded
from ratchet.values.status import Refusal, Status
from ratchet.values.verdict import is_tpu


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The tools of one verdict."""

    request: Request
    source: bytes
    """The kernel file."""
    freeze: bool
    """Whether the file's own problem is frozen, because it has none yet or a new one is wanted."""
    workers: Workers
    exam: Examiner
    work: Path
    """Evidence while judging."""
    model: Modelled | None
    """None where nothing is modelled: on a CPU or GPU."""
    device: Measured | None
    """None where no device is timed."""

    @property
    def evaluator(self) -> Modelled | Measured:
        """The one whose platform kernels are exported for, and whose values count."""
        evaluator = self.model or self.device
        if evaluator is None:
            raise Refusal(Status.USAGE, f"{self.request.conditions.evaluator} is no evaluator")
        return evaluator

    @property
    def timed(self) -> str:
        """What timed the kernel, in words: the device where there is one."""
        return (self.device or self.evaluator).timed

    @property
    def values(self) -> Callable[[Problem, Artefact], tuple[Parity, str]]:
        """The step that checks the values, or one that says that they were not asked for."""
        return _not_asked_for if self.request.model_only else self.evaluator.values

    @property
    def _wanted(self) -> tracer.TraceRequest:
        return tracer.TraceRequest(
            source=self.source,
            name=self.request.kernel.name,
            platform=self.evaluator.platform,
            chip=self.request.chip,
            limits=self.request.limits,
            project=self.request.project,
        )

    def trace(self) -> tuple[tuple[Artefact, Problem | None], str]:
        """The first step of a verdict: the kernel file, traced and exported in its jail, and its problem if new."""
        with self.workers.author() if self.freeze else contextlib.nullcontext() as author:
            artefact, summary = tracer.step(self.workers.tracing(self._wanted), again=self.workers.one_file)
            self.workers.prepare_next()
            frozen = None if author is None else self._frozen(artefact, author)
        return (artefact, frozen), summary

    def _frozen(self, artefact: Artefact, author: Child) -> Problem:
        """The file's own problem, which ``author`` defines."""
        return freezing.frozen(artefact, tracer.definition(self._wanted, author), self.workers.freezer())

    def problem(self, artefact: Artefact, *, frozen: Problem | None) -> tuple[Problem, str]:
        """The second step: the problem to judge by, just ``frozen`` from this file or the lock's, and that they agree.

        Under another JAX than froze it the digests of both programs differ: the file's own problem is frozen, too, and
        compared by what it computes, once in a clone. Either way a kernel is judged by what the lock holds.

        Raises:
          Refusal: ``PROBLEM_CHANGED`` or ``WRONG_SHAPE``.
        """
        lock = self.request.lock
        problem, how = frozen or problems.read(lock), "frozen now" if frozen else "frozen"
        if problem is None:
            raise Refusal(Status.PROBLEM_CHANGED, f"{lock.name} vanished while judging; restore it with git")
        own = artefact
        if problems.is_of_another_jax(artefact, problem):
            how = f"frozen under jax {problem.jax_version}"
            own = replace(own, reference_sha256=problem.reference_sha256, inputs_sha256=problem.inputs_sha256)
        problems.check_unchanged(own, problem)
        problems.check_outputs(own, problem)
        if own is not artefact:
            self._check_same(problem, artefact)
        return problem, f"{problem.description} ({how}, {problem.short})"

    def _check_same(self, problem: Problem, artefact: Artefact) -> None:
        root, same = Root(self.request.root), f"problem {problem.digest} is {' '.join(problems.digests(artefact))}"
        if not made.is_here(root, same):
            self.exam.compare_problem(problem, self._frozen(artefact, self.workers.author()))
            made.mark(root, same)

    @functools.cached_property
    def _verdicts(self) -> Path:
        return clone_folder(self.request.root) / "verdicts"

    def identity(self, artefact: Artefact | None, problem: Problem | None) -> verdict_cache.Identity | None:
        """Which program this is, under which conditions; None where none of its verdicts is remembered."""
        request = self.request
        if artefact is None or problem is None or self.model is None or self.device is not None:
            return None
        if not (request.remember and request.conditions.seal):
            return None
        program = compiling.identify(artefact, self.model.compiler(artefact))  # which has it at hand then
        if program is None:
            return None
        conditions = {
            "conditions": encoded(replace(request.conditions, problem=problem.short)),
            "chip": request.chip.name,
            "problem": hashlib.sha256(encode(problem)).hexdigest(),
            "secret": hashlib.sha256(b"verdicts" + secret_of(request.root)).hexdigest(),
            "deep": request.deep,
            "values": not request.model_only,
        }
        return verdict_cache.identity(*program, artefact, conditions)

    def recall(self, steps: Steps, program: verdict_cache.Identity | None, **current: Any) -> Verdict | None:
        """The verdict that this program had before, with what is ``current`` in it; None where it has to be judged.

        One that was modelled as too slow counts where it is too slow for who asks now, too.
        """
        if program is None or self.freeze:
            return None
        verdict = verdict_cache.recall(self._verdicts, program)
        if verdict is None:
            return None
        if verdict.status is Status.UNCHECKED and not self.request.model_only:
            why = self.request.bar(verdict.score) if self.request.bar and verdict.score else ""
            if not why:
                return None
            verdict = replace(verdict, reason=f"correctness: {why}")
        said = f"{verdict.status.name}, which the same program had before; --fresh judges it again"
        steps.run("remembered", lambda: (True, said))
        done = {step.name for step in steps.steps}
        old = (replace(step, seconds=0.0) for step in verdict.steps if step.name not in done)
        return replace(verdict, steps=(*steps.steps, *old), seconds=steps.seconds, **current)

    def remember(self, program: verdict_cache.Identity | None, verdict: Verdict) -> Verdict:
        """``verdict``, which is remembered if it is one that the same program would have again."""
        if program is not None:
            experiment = self.request.evidence.name if self.request.evidence is not None else ""
            verdict_cache.keep(self._verdicts, program, verdict, experiment)
        return verdict

    def worthwhile(
        self, values: Pending[Parity] | None, steps: Steps, problem: Problem | None, timeline: Timeline | None
    ) -> Pending[Parity] | None:
        """``values``, unless they cannot matter to whoever asks: the kernel failed already, or is too slow to be kept.

        A step that is not worth its time is ended.
        """
        if values is None or self.request.bar is None:
            return values
        why = self._too_slow(self.request.bar, problem, timeline) if steps.passed else ""
        if steps.passed and not why:
            return values
        with self.exam.stopped():
            values.wait()
        return values.instead(Refusal(Status.UNCHECKED, why)) if why else None

    def _too_slow(self, bar: Bar, problem: Problem | None, timeline: Timeline | None) -> str:
        if self.model is None or problem is None or timeline is None:
            return ""
        try:
            score, _ = self.model.score(problem, timeline)
        except Refusal:  # the step of that name says it
            return ""
        return bar(score)

    def record(self, steps: Steps, frozen: Problem | None) -> None:
        """Write down what is to stay: evidence, and the problem that a kernel which passed was frozen with."""
        if steps.internal_error:
            paths.make_folder(self.work)
            paths.write(self.work / INTERNAL_ERROR, steps.internal_error.encode())
        if self.request.evidence is not None and paths.exists(self.work):
            keep(self.work, self.request.evidence)
        if steps.passed and frozen is not None:
            paths.write(self.request.lock, encode(frozen), flush=True)


def _not_asked_for(_problem: Problem, _artefact: Artefact) -> tuple[Parity, str]:
    raise Refusal(Status.UNCHECKED, "only its latency was asked for")


@contextlib.contextmanager
def opened(request: Request, workers: Workers | None, note: Callable[[str], None]) -> Iterator[Bench]:
    """The bench for ``request``; children are started, unless ``workers`` that somebody keeps are given.

    ``note`` is called with what a running step does.
    """
    on = request.conditions.evaluator
    modelled = is_tpu(on)
    source = paths.read(request.kernel)
    freeze = request.new_problem or not paths.exists(request.lock)
    with contextlib.ExitStack() as stack:
        workers = workers or stack.enter_context(Workers(request.chip, compiles=modelled, seal=request.conditions.seal))
        work = workers.folder("program")
        compiler = "" if modelled else devices.compiler(on)
        exam = Examiner(
            workers=workers,
            root=request.root,
            evidence=work,
            compiler=compiler,
            progress=note,
            known=workers.executed,
        )
        device = Measured(request=request, workers=workers, exam=exam, work=work, freeze=freeze)
        stack.callback(device.close)
        yield Bench(
            request=request,
            source=source,
            freeze=freeze,
            workers=workers,
            exam=exam,
            work=work,
            model=Modelled(request=request, workers=workers, exam=exam, work=work, freeze=freeze) if modelled else None,
            device=device if on in MEASURED else None,
        )
