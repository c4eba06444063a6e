"""An attached device as an evaluator: values from the device, and timings beside the incumbent's."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ratchet.exam.candidate import tracer
from ratchet.exam.judge import audit, roofline
from ratchet.exam.judge.correctness import Examiner
from ratchet.exam.judge.request import Request
from ratchet.exam.judge.workers import Workers
from ratchet.exam.measure import devices, session
from ratchet.exam.problem.problem import Problem
from ratchet.process import paths
from ratchet.tpu.dump.files import load_hlo
from ratchet.tpu.dump.hlo import HloModule
from ratchet.values import Against, Artefact, Paired, Parity, Samples, Score
from ratchet.values.status import Refusal, Status
from ratchet.values.verdict import GPU_KERNELS, PLATFORMS

HLO = "optimized.hlo"
TIMINGS = "timings.json"


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What launches of a kernel say, and what they say beside the incumbent where there is one."""

    samples: Samples
    paired: Paired | None = None


def check_program(platform: str, hlo: HloModule) -> tuple[str, ...]:
    """The Pallas kernels in a compiled program, by their targets. On a GPU there has to be one.

    Raises:
      Refusal: ``NOT_A_KERNEL`` or ``HOST_CALLBACK``.
    """
    audit.no_host_calls(hlo)
    kernels = tuple(dict.fromkeys(op.target for op in hlo.ops.values() if op.target in GPU_KERNELS))
    if platform == "cuda" and not kernels:
        raise Refusal(Status.NOT_A_KERNEL, audit.NO_KERNEL)
    return kernels


@dataclass(kw_only=True)
class Measured:
    """An evaluator that times the attached device, for one verdict. Its methods are steps as those of ``Modelled``."""

    request: Request
    workers: Workers
    exam: Examiner
    work: Path
    """Where the compiled text and every timing go."""
    freeze: bool
    _rival: Artefact | None = None
    _device: session.Device | None = field(default=None, repr=False)

    @property
    def evaluator(self) -> str:
        """``tpu``, ``gpu`` or ``cpu``."""
        return self.request.conditions.evaluator

    @property
    def platform(self) -> str:
        return PLATFORMS[self.evaluator]

    @property
    def timed(self) -> str:
        return f"on the {self.evaluator}"

    @property
    def device(self) -> session.Device:
        """The processes that run on the device, started when they are first needed."""
        if self._device is None:
            self._device = session.Device(evaluator=self.evaluator, folder=self.workers.folder)
        return self._device

    def values(self, problem: Problem, artefact: Artefact) -> tuple[Parity, str]:
        """A step of a verdict: what the device computes, as ``correctness.Examiner`` judges it.

        Raises:
          Refusal: also as ``check_program``, before any value is compared.
        """
        if problem.mesh.chips > 1:
            raise Refusal(Status.CONTRACT, f"a mesh is declared; on a {self.evaluator} one device is judged")
        return self.exam.step(problem, artefact, freeze=self.freeze, deep=False, execute=self._execute(problem))

    def _execute(self, problem: Problem) -> Callable[[Path, Path, tuple[str, ...]], Path]:
        def run(binary: Path, inputs: Path, kinds: tuple[str, ...]) -> Path:
            _, folder = self.device.ask(
                {
                    "inputs": str(inputs),
                    "kinds": kinds,
                    "specs": [{"shape": spec.shape, "dtype": spec.dtype} for spec in problem.inputs],
                    "programs": [{"name": session.CANDIDATE, "path": str(binary), "known": []}],
                    "seconds": 0,
                }
            )
            text = paths.read(folder / session.CANDIDATE / HLO).decode()
            self._leave(HLO, text)
            check_program(self.platform, load_hlo(folder / session.CANDIDATE))
            return folder / session.CANDIDATE

        return run

    def incumbent(self, against: Against) -> tuple[Artefact, str]:
        """A step of a verdict: the incumbent's program, exported now and here as the candidate's was, to be timed too.

        Raises:
          Refusal: ``INFRASTRUCTURE``, whatever is wrong with it: it was judged before.
        """
        source, name = paths.read(against.kernel), against.kernel.name
        try:
            self._rival = tracer.examine(
                source, name, child=self.workers.candidate(), platform=self.platform, chip=self.request.chip
            )
        except Refusal as refusal:
            raise Refusal(
                Status.INFRASTRUCTURE, f"HEAD's kernel was judged before and now: {refusal.message}"
            ) from None
        return self._rival, f"HEAD's {name}; comparison {against.test} of this ledger"

    def latency(self, problem: Problem, built: Artefact) -> tuple[Timing, str]:
        """A step of a verdict: launches of the candidate, beside those of the incumbent if there is one.

        Raises:
          Refusal: ``INVALID`` for impossible times, or what is wrong with timed outputs, e.g. ``WRONG_VALUES``.
        """
        if problem.mesh.chips > 1:
            raise Refusal(Status.CONTRACT, "a mesh is declared; timing works on one chip so far")
        self.exam.prepare(problem, session.KINDS)
        samples, paired = session.Session(
            device=self.device,
            inputs=self.exam.write_inputs(problem, session.KINDS),
            specs=problem.inputs,
            verify=lambda name, kind, outputs: self.exam.check_outputs(problem, kind, outputs, what=f"the {name}"),
            programs=self._programs(built),
            test=self.request.against.test if self.request.against else 1,
            budget_s=self.request.budget_s,
            capture=self.request.capture,
            deep=self.request.deep,
            progress=self.exam.progress,
        ).run()
        self._leave(TIMINGS, json.dumps(dataclasses.asdict(samples), indent=1) + "\n")
        summary = (
            f"{samples.latency_ms:.4g} ms measured ({samples.clock} clock), {samples.calls} calls in "
            f"{len(samples.launches)} launches"
        )
        return Timing(samples=samples, paired=paired), summary + (f"; {paired.answer}" if paired else "")

    def _programs(self, candidate: Artefact) -> dict[str, Path]:
        """The exported programs as files, by who is timed."""
        programs = {session.CANDIDATE: candidate} | ({session.INCUMBENT: self._rival} if self._rival else {})
        files = {name: self.workers.folder(f"{name}.bin") for name in programs}
        for name, file in files.items():
            paths.write(file, programs[name].program)
        return files

    def score(self, problem: Problem, latency: Timing, *, modelled: Score | None = None) -> tuple[Score, str]:
        """A step of a verdict: the roofline's share of the measured latency, with the band of ``modelled``."""
        peak = devices.peak(self.evaluator, devices.device(self.evaluator))
        counted = self.exam.counted_flops(problem)
        return roofline.measured(problem, latency.samples, peak, modelled, counted=counted)

    def _leave(self, name: str, text: str) -> None:
        """Leave evidence."""
        paths.make_folder(self.work)
        paths.write(self.work / name, text.encode())

    def close(self) -> None:
        if self._device is not None:
            self._device.close()
