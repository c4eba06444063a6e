"""The model as an evaluator: the Mosaic module is executed for its values, the compiled schedule for its cycles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ratchet.candidate.problem import Problem
from ratchet.chips import Chip
from ratchet.compiler import compile as compiling
from ratchet.dump.beside import computed_operands
from ratchet.dump.files import load_hlo, tokens_in
from ratchet.judge import control, roofline, schedule
from ratchet.judge.correctness import Examiner
from ratchet.judge.workers import Workers
from ratchet.values import Artefact, Parity, Program, Score, Timeline
from ratchet.values.omission import Unmodelled


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """An ``Evaluator`` that needs no device: a TPU is modelled."""

    chip: Chip
    workers: Workers
    exam: Examiner
    work: Path
    """Where the compiler's texts go."""
    freeze: bool
    deep: bool

    @property
    def platform(self) -> str:
        return "tpu"

    @property
    def timed(self) -> str:
        return "by the schedule machine"

    @property
    def peak(self) -> Chip:
        return self.chip

    def compile(self, artefact: Artefact) -> tuple[Program, str]:
        """A step of a verdict: the program that the TPU compiler makes for this chip."""
        return compiling.step(artefact, self.chip, self.work, self.workers.compiler_for(self.chip))

    def values(self, problem: Problem, artefact: Artefact) -> tuple[Parity, str]:
        """A step of a verdict: what the artefact's own Mosaic module computes, executed on the CPU."""
        self.exam.steering(problem)  # what the other steps ask of the same child does not wait for the checks
        self.exam.counted_flops(problem)
        return self.exam.step(problem, artefact, freeze=self.freeze, deep=self.deep)

    def latency(self, problem: Problem, built: Program) -> tuple[Timeline, str]:
        """A step of a verdict: the schedule machine over the compiled program, on every chip of the problem's mesh."""
        steering, chip, mesh = self.exam.steering(problem), self.chip, problem.mesh
        operands = computed_operands(load_hlo(built.dump_dir))
        if not operands:
            return schedule.step(self.workers.machine, built, chip, mesh, steering, detail=self.deep)
        computed, same = self.exam.computed(problem, built.dump_dir / compiling.PROGRAM, operands)
        timeline, summary = schedule.step(
            self.workers.machine, built, chip, mesh, steering, computed=computed, detail=self.deep
        )
        if not same:
            timeline = replace(timeline, not_modelled=(Unmodelled.FLOAT_TABLES, *timeline.not_modelled))
        return timeline, summary

    def control(self, program: Program, timeline: Timeline, _parity: Parity) -> tuple[int, str]:
        """A step of a verdict: whether the schedule machine went the way of the executed module, once that is right."""
        control.same_modules(self.exam.modules, load_hlo(program.dump_dir))
        return control.step(self.exam.executed, timeline, tokens_in(program.dump_dir / "schedule"))

    def score(self, problem: Problem, latency: Timeline) -> tuple[Score, str]:
        """A step of a verdict: the roofline's share of the modelled latency."""
        return roofline.step(problem, latency, self.chip, counted=self.exam.counted_flops(problem))

    def close(self) -> None:
        """Nothing is held that the workers do not hold."""
