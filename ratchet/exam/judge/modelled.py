"""The model as an evaluator: the Mosaic module is executed for its values, the compiled schedule for its cycles.

``measured.py`` is the other way to know what a kernel computes and how long it takes. Methods that are steps of a
verdict return their value and a summary, and raise a ``Refusal`` where the kernel fails.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ratchet.exam.judge import control, roofline, schedule
from ratchet.exam.judge.correctness import Examiner
from ratchet.exam.judge.request import Request
from ratchet.exam.judge.workers import Workers
from ratchet.exam.problem.problem import Problem
from ratchet.process.sandbox.child import Child
from ratchet.tpu.chips import Chip
from ratchet.tpu.compiler import compile as compiling
from ratchet.tpu.compiler.fast import route
from ratchet.tpu.computed_operands import ComputedOperand, Draw, computed_operands
from ratchet.tpu.dump.files import load_hlo, tokens_in
from ratchet.values import Artefact, Parity, Program, Score, Timeline


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """An evaluator that needs no device: a TPU is modelled."""

    request: Request
    workers: Workers
    exam: Examiner
    work: Path
    """Where the compiler's texts go."""
    freeze: bool

    @property
    def chip(self) -> Chip:
        return self.request.chip

    @property
    def platform(self) -> str:
        return "tpu"

    @property
    def timed(self) -> str:
        return "by the schedule machine"

    def compile(self, artefact: Artefact) -> tuple[Program, str]:
        """A step of a verdict: the program that the TPU compiler makes for this chip."""
        profiler = functools.partial(self.workers.profiler_for, self.chip)
        return compiling.step(artefact, self.chip, self.work, self.workers.compiler_for(self.chip), profiler=profiler)

    def compiler(self, artefact: Artefact) -> Child:
        """The child that ``compile`` asks first."""
        large = route.takes(artefact)
        return self.workers.profiler_for(self.chip) if large else self.workers.compiler_for(self.chip)

    def values(self, problem: Problem, artefact: Artefact) -> tuple[Parity, str]:
        """A step of a verdict: what the artefact's own Mosaic module computes, executed on the CPU."""
        self.exam.steering(problem)  # what the other steps ask of the same child does not wait for the checks
        self.exam.counted_flops(problem)
        return self.exam.step(problem, artefact, freeze=self.freeze, deep=self.request.deep)

    def latency(self, problem: Problem, built: Program) -> tuple[Timeline, str]:
        """A step of a verdict: the schedule machine over the compiled program, on every chip of the problem's mesh."""
        operands = computed_operands(load_hlo(built.dump_dir))
        draw, left_out = self.exam.steered(problem, self._program(built), operands)
        timeline, summary = self._modelled(problem, built, draw, detail=self.request.deep)
        return replace(timeline, not_modelled=(*left_out, *timeline.not_modelled)), summary

    def _program(self, built: Program) -> Path:
        return built.dump_dir / compiling.PROGRAM

    def _modelled(self, problem: Problem, built: Program, draw: Draw, *, detail: bool = False) -> tuple[Timeline, str]:
        machine, (steering, computed) = self.workers.machine, draw
        return schedule.step(machine, built, self.chip, problem.mesh, steering, computed=computed, detail=detail)

    def _compare_draws(
        self,
        problem: Problem,
        built: Program,
        operands: Sequence[ComputedOperand],
        public: Timeline,
        code_sha256: str,
    ) -> None:
        """Refuse a kernel that does with the public inputs what it does with no others: see ``control``.

        Raises:
          Refusal: ``CONTROL_FLOW_DIFFERS``; as ``schedule.step`` for another draw.
        """
        program = self._program(built)
        others: list[Timeline] = []
        for batch in control.seeds(problem, code_sha256):
            self.exam.progress(f"modelled on other inputs that steer it, too: {len(batch)} draws")
            drawn = self.exam.draws(problem, program, operands, batch)
            others += [self._modelled(problem, built, draw)[0] for draw in drawn]
            if not control.unlike(public, others):
                return
        raise control.refuse(control.unlike(public, others), tokens_in(built.dump_dir / "schedule"))

    def control(self, problem: Problem, program: Program, timeline: Timeline, _parity: Parity) -> tuple[int, str]:
        """A step of a verdict: whether the schedule machine went the way of the executed module, once that is right,
        and does with other inputs what it did with those that steer the modelled run."""
        hlo, executed = load_hlo(program.dump_dir), self.exam.executed
        assert executed is not None, "what has a parity was executed"
        control.same_modules(executed.modules, hlo)
        operands = computed_operands(hlo)
        if operands or (executed.is_steered and self.exam.steering(problem)):
            self._compare_draws(problem, program, operands, timeline, executed.code_sha256)
        return control.step(self.exam.control, timeline, tokens_in(program.dump_dir / "schedule"), hlo)

    def score(self, problem: Problem, latency: Timeline) -> tuple[Score, str]:
        """A step of a verdict: the roofline's share of the modelled latency."""
        return roofline.step(problem, latency, self.chip, counted=self.exam.counted_flops(problem))
