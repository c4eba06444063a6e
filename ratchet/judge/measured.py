"""Measured mode as steps of a verdict: values from the device, and timings beside the incumbent's."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ratchet.candidate import room
from ratchet.candidate.platforms import GPU_KERNELS, PLATFORMS
from ratchet.candidate.problem import Problem
from ratchet.dump.files import load_hlo
from ratchet.dump.hlo import HloModule
from ratchet.judge import audit
from ratchet.judge.correctness import Examiner
from ratchet.judge.workers import Workers
from ratchet.measure import devices, session
from ratchet.values import MEASURED, Against, Artefact, Paired, Parity, Samples
from ratchet.values.status import Refusal, Status

BUDGET_SECONDS = session.BUDGET_SECONDS
HLO = "optimized.hlo"
TIMINGS = "timings.json"


def platform(evaluator: str) -> str:
    """What a kernel is exported for."""
    return PLATFORMS.get(evaluator, "tpu")


def modelled(evaluator: str) -> bool:
    """Whether a verdict holds a modelled latency: with a TPU attached it has both."""
    return platform(evaluator) == "tpu"


def by(evaluator: str) -> str:
    """What times a kernel, in words."""
    return f"on the {evaluator}" if evaluator in MEASURED else "by the schedule machine"


def check_program(platform: str, hlo: HloModule) -> tuple[str, ...]:
    """The Pallas kernels in a compiled program, by their targets. On a GPU there has to be one.

    Raises:
      Refusal: ``NOT_A_KERNEL`` or ``HOST_CALLBACK``.
    """
    audit.no_host_calls(hlo)
    found = tuple(dict.fromkeys(op.target for op in hlo.ops.values() if op.target in GPU_KERNELS))
    if platform == "cuda" and not found:
        raise Refusal(
            Status.NOT_A_KERNEL,
            "the compiled program holds no Pallas kernel: kernel_fn is plain XLA, or its kernel's result is not used",
        )
    return found


@dataclass(kw_only=True)
class Bench:
    """The attached device, for one verdict."""

    evaluator: str
    workers: Workers
    exam: Examiner
    budget_s: float = session.BUDGET_SECONDS
    capture: Path | None = None
    deep: bool = False
    _device: session.Device | None = field(default=None)

    def __post_init__(self) -> None:
        if not modelled(self.evaluator):
            self.exam.compiler = devices.compiler(self.evaluator)

    @property
    def device(self) -> session.Device:
        if self._device is None:
            self._device = session.Device(evaluator=self.evaluator, folder=self.workers.folder)
        return self._device

    def check(self, problem: Problem, artefact: Artefact, *, freeze: bool) -> tuple[Parity, str]:
        """A step of a verdict: the values that the device computes, as ``correctness.Examiner`` judges them.

        Raises:
          Refusal: also as ``check_program``, before any value is compared.
        """
        if problem.mesh.chips > 1:
            raise Refusal(Status.CONTRACT, f"a mesh is declared; on a {self.evaluator} one device is judged")
        return self.exam.step(problem, artefact, freeze=freeze, deep=False, execute=self._execute(problem))

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
            text = (folder / session.CANDIDATE / HLO).read_text()
            if self.exam.evidence is not None:
                self.exam.evidence.mkdir(parents=True, exist_ok=True)
                (self.exam.evidence / HLO).write_text(text)
            check_program(platform(self.evaluator), load_hlo(folder / session.CANDIDATE))
            return folder / session.CANDIDATE

        return run

    def incumbent(self, against: Against) -> tuple[Artefact, str]:
        """A step of a verdict: the incumbent's program, exported now and here, as the candidate's was."""
        source, name = against.kernel.read_bytes(), against.kernel.name
        try:
            artefact, _ = room.examine(source, name, child=self.workers.candidate(), platform=platform(self.evaluator))
        except Refusal as refusal:
            raise Refusal(
                Status.INFRASTRUCTURE, f"HEAD's kernel was judged before and now: {refusal.message}"
            ) from None
        return artefact, f"HEAD's {name}; comparison {against.test} of this ledger"

    def step(
        self, problem: Problem, artefact: Artefact, rival: Artefact | None, against: Against | None
    ) -> tuple[tuple[Samples, Paired | None], str]:
        """A step of a verdict: launches of the candidate, beside those of the incumbent if there is one.

        Raises:
          Refusal: ``INVALID`` for impossible times, or what is wrong with timed outputs, e.g. ``WRONG_VALUES``.
        """
        if problem.mesh.chips > 1:
            raise Refusal(Status.CONTRACT, "a mesh is declared; timing works on one chip so far")
        if against is not None and rival is None:
            raise Refusal(Status.INFRASTRUCTURE, "there is no program of HEAD's kernel to compare with")
        programs = {session.CANDIDATE: artefact} | ({session.INCUMBENT: rival} if rival is not None else {})
        paths = {}
        for name, one in programs.items():
            paths[name] = self.workers.folder(f"{name}.bin")
            paths[name].write_bytes(one.program)
        self.exam.prepare(problem, session.KINDS)
        samples, paired = session.Session(
            device=self.device,
            inputs=self.exam.write_inputs(problem, session.KINDS),
            specs=problem.inputs,
            verify=lambda name, kind, outputs: self.exam.check_outputs(problem, kind, outputs, what=f"the {name}"),
            programs=paths,
            test=against.test if against else 1,
            budget_s=self.budget_s,
            capture=self.capture,
            deep=self.deep,
            progress=self.exam.progress,
        ).run()
        self._write_evidence(samples)
        said = (
            f"{samples.latency_ms:.4g} ms measured ({samples.clock} clock), {samples.calls} calls in "
            f"{len(samples.launches)} launches"
        )
        return (samples, paired), said + (f"; {paired.answer}" if paired else "")

    def _write_evidence(self, samples: Samples) -> None:
        """Every timing of every launch, beside the compiler's texts."""
        if self.exam.evidence is not None:
            self.exam.evidence.mkdir(parents=True, exist_ok=True)
            text = json.dumps(dataclasses.asdict(samples), indent=1)
            (self.exam.evidence / TIMINGS).write_text(text + "\n")

    def peak(self) -> devices.Peak:
        """What the device can do at most."""
        return devices.peak(self.evaluator, devices.device(self.evaluator))

    @staticmethod
    def parts(measured: tuple[Samples, Paired | None] | None) -> tuple[Samples | None, Paired | None]:
        """Both parts of what ``step`` found; nothing where it failed."""
        return measured or (None, None)

    def close(self) -> None:
        if self._device is not None:
            self._device.close()
