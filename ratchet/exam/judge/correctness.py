"""Correctness of an artefact against the frozen problem: what is asked of the values child, in which order."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.exam.judge import requests
from ratchet.exam.judge.asking import LIMITS, Asking, Workers
from ratchet.exam.judge.responses import passed, read_arrays
from ratchet.exam.problem import instances
from ratchet.exam.problem.floor import products
from ratchet.exam.problem.problem import Problem, encode
from ratchet.process import paths
from ratchet.process.sandbox.child import Limits
from ratchet.tpu import computed_operands
from ratchet.tpu.compiler.environment import compiler_version
from ratchet.tpu.computed_operands import ComputedOperand, Draw, Steering
from ratchet.values import Artefact, Parity, control
from ratchet.values.control import ControlFlow
from ratchet.values.omission import Unmodelled
from ratchet.values.records import Record

PUBLIC = bytes(8)
"""The key of the inputs that steer a modelled run."""
ARRAYS_BYTES = 8 << 30
"""The most that is read of the arrays that the values child leaves."""

CHECKS = {
    "random": "the problem's own, and again for what must not matter",
    "fresh": "the problem's own inputs, of another seed",
    "probe": "a few rows made large: the output has to move as the reference does",
    "public": "those of the modelled run, whose tables follow from them",
    "mixed": "large, tiny, equal, zero and integer regions",
    "signed": "regions of one sign, near and far from zero",
    "small": "what one number is made of, all of it small",
}


def what(kind: str, problem: Problem) -> str:
    """What a kind of instance asks of a problem, in words."""
    name, _, chip = kind.partition("-")
    if name == "mixed":
        more = (", and ties" if problem.ordered_axes else "") + (", and ends of ranges" if problem.drawn else "")
        return CHECKS[name] + more
    return CHECKS[name].replace("a few rows", f"a few rows of chip {chip}") if chip else CHECKS[name]


Execute = Callable[[Path, Path, tuple[str, ...]], Path]
"""``execute(program, folder of inputs, kinds)``: runs a program on a device and returns the folder of its outputs."""


@dataclass(frozen=True, kw_only=True)
class Executed:
    """What came of executing a program that passed every check."""

    parity: Parity
    control: ControlFlow
    """Which way it went on the random inputs."""
    modules: frozenset[str]
    """Digests of the Mosaic modules that were executed."""
    is_steered: bool
    """Whether scalars that are read from memory may decide what it does."""
    code_sha256: str
    """Digest of its code, with tokens for its author's names and places."""


@dataclass(kw_only=True)
class Examiner:
    """Asks the values child, for one verdict."""

    workers: Workers
    root: Path
    evidence: Path | None = None
    """Where ``verification.json`` goes."""
    compiler: str = ""
    """What compiles the program, where it is not the TPU's."""
    progress: Callable[[str], None] = lambda text: None
    limits: Limits = LIMITS
    known: dict[tuple[str, ...], Executed] = field(default_factory=dict)
    """Programs that passed, by problem, digest and checks: one that is judged for several chips is executed once."""
    executed: Executed | None = field(default=None, init=False)
    """The candidate, once its modules were executed and passed."""
    _public: ControlFlow | None = field(default=None, init=False)
    """Which way the candidate went on the public inputs, where its tables follow from floats."""
    _flops: dict[str, float] = field(default_factory=dict, init=False)
    _steering: dict[str, Steering] = field(default_factory=dict, init=False)
    """What was asked of a problem before, by its digest."""

    def __post_init__(self) -> None:
        self._asking = Asking(workers=self.workers, root=self.root, limits=self.limits)

    @property
    def control(self) -> ControlFlow:
        """Which way the candidate went on the inputs whose steering values are those of the modelled run: the random
        ones, or the public ones where tables follow from floats."""
        return self._public or (self.executed.control if self.executed else ControlFlow())

    def stopped(self) -> contextlib.AbstractContextManager[None]:
        """Nothing more is asked in this context, and what is under way ends: see ``Asking.stopped``."""
        return self._asking.stopped()

    def step(
        self, problem: Problem, artefact: Artefact, *, freeze: bool, deep: bool, execute: Execute | None = None
    ) -> tuple[Parity, str]:
        """A step of a verdict: every check, with a summary; a problem frozen now is checked first."""
        if freeze:
            self.prepare(problem, whole=deep)
            self.check_problem(problem)
        parity = self._known_or_checked(problem, artefact, deep=deep, execute=execute)
        return parity, (
            f"{len(parity.checks)} checks in {parity.seconds:.1f} s, worst error {parity.worst_error:.2f} of its "
            f"allowance, rms {parity.rms_error:.1e} (plain XLA {parity.floor_rms_error:.1e})"
        )

    def _known_or_checked(self, problem: Problem, artefact: Artefact, *, deep: bool, execute: Execute | None) -> Parity:
        key = (problem.short, hashlib.sha256(artefact.program).hexdigest(), str(deep))
        if execute is None and key in self.known:
            self.executed = self.known[key]
            return self.executed.parity
        parity = self.check(problem, artefact, deep=deep, execute=execute)
        if self.executed is not None:
            self.known[key] = self.executed
        return parity

    def _ask(self, problem: Problem, request: requests.ValuesRequest, prefix: str = "") -> Record:
        """The child's answer, if it is a pass.

        Raises:
          Refusal: as ``Asking.ask`` and ``passed``, with ``prefix`` before the message.
        """
        return passed(self._asking.ask(problem, request), prefix)

    def counted_flops(self, problem: Problem) -> float:
        """FLOPs of the reference as written; 0, for not known, where its products alone are as many as claimed."""
        if problem.flops <= sum(products(problem).values()):
            return 0.0
        if problem.short not in self._flops:
            self._flops[problem.short] = float(self._ask(problem, requests.CountFlops())["flops"])
        return self._flops[problem.short]

    def steering(self, problem: Problem) -> Steering:
        """The inputs that may steer a kernel's loops, by position (see ``instances.steering``).

        They come from a public key, so that a modelled latency is the same in every clone; ``random`` and the probes
        hold the same, so that what a kernel does in the modelled run is what it is checked for.
        """
        if problem.short not in self._steering:
            some = instances.steering(problem.inputs)
            self._steering[problem.short] = self.draws(problem, None, (), [PUBLIC])[0][0] if some else {}
        return self._steering[problem.short]

    def steered(
        self, problem: Problem, program: Path, operands: Sequence[ComputedOperand]
    ) -> tuple[Draw, tuple[Unmodelled, ...]]:
        """What steers the modelled run of a compiled program, as ``steering`` and ``computed`` have it, and what that
        leaves out. Raises Refusal as ``computed``."""
        steering = self.steering(problem)
        computed, same = self.computed(problem, program, operands) if operands else ([], True)
        return (steering, computed), () if same else (Unmodelled.FLOAT_TABLES,)

    def computed(
        self, problem: Problem, program: Path, operands: Sequence[ComputedOperand]
    ) -> tuple[list[Steering], bool]:
        """What XLA computes of the kernels' operands, per mesh index by ``"launch:place"``, from public inputs.

        Also whether secret floats give the same. If not, the program is checked on the public inputs, too: what the
        modelled run does has to be right.

        Raises:
          Refusal: as ``check``, and ``SCHEDULE_UNKNOWN`` where the operands have no one value.
        """
        path = self._asking.folder() / "operands.npz"
        wanted = requests.WriteOperands(computed=_computed(program, operands), path=path)
        same = self._ask(problem, wanted)["same"]
        if not same:
            self.prepare(problem, ["public"])
            self.progress("public: the inputs of the modelled run, whose tables follow from floats")
            check = requests.CheckProgram(program=program, kind="public")
            answer = self._ask(problem, check, f"public inputs ({CHECKS['public']}): ")
            self._public = control.decode(answer["control"])
        per_chip = computed_operands.read(read_arrays(path, ARRAYS_BYTES), operands, problem.mesh.chips)
        computed_operands.check_shapes(operands, per_chip[0])
        return per_chip, same

    def draws(
        self, problem: Problem, program: Path | None, operands: Sequence[ComputedOperand], keys: Sequence[bytes]
    ) -> list[Draw]:
        """For inputs with each of these keys what steers, as ``steering`` and, per mesh index, ``computed`` have it.

        Raises:
          Refusal: as ``computed``.
        """
        path = self._asking.folder() / "draws.npz"
        computed = _computed(program, operands) if program and operands else None
        self._ask(problem, requests.WriteDraws(keys=tuple(key.hex() for key in keys), computed=computed, path=path))
        stored, steering = read_arrays(path, ARRAYS_BYTES), instances.steering(problem.inputs)
        return [
            (
                {position: stored[f"{number}:input{position}"] for position in steering},
                computed_operands.read(stored, operands, problem.mesh.chips, prefix=f"{number}:"),
            )
            for number in range(len(keys))
        ]

    def prepare(self, problem: Problem, kinds: Sequence[str] = (), *, whole: bool = False) -> None:
        """Compute the references that are not cached yet, by default those of every check; ``whole``: of all rows."""
        wanted = kinds or instances.kinds_of(problem)
        missing = [kind for kind in wanted if not self._asking.has_reference(problem, kind, whole=whole)]
        for kind in missing:
            self.progress(f"reference in float64, once per problem: {kind}")
            self._ask(problem, requests.MakeReference(kind=kind, whole=whole))

    def check_problem(self, problem: Problem) -> None:
        """Refuse a problem that a constant would pass.

        Raises:
          Refusal: ``WEAK_PROBLEM`` or ``CONTRACT``.
        """
        self.progress("would a constant pass this problem?")
        self._ask(problem, requests.CheckProblem())

    def compare_problem(self, problem: Problem, other: Problem) -> None:
        """Compare a problem that another JAX froze with the one that this JAX makes of a kernel file.

        Raises:
          Refusal: ``PROBLEM_CHANGED`` where they do not compute the same.
        """
        if other.reference_sha256 != problem.reference_sha256:
            self.prepare(problem, ["random"])
        lock = self._asking.folder() / "other.lock.json"
        paths.write(lock, encode(other))
        self._ask(problem, requests.CompareProblem(lock=lock))

    def write_inputs(self, problem: Problem, kinds: Sequence[str]) -> Path:
        """A folder that holds the arrays of each instance, for a device to load."""
        folder = self._asking.folder()
        for kind in kinds:
            self._ask(problem, requests.WriteInputs(kind=kind, folder=folder / kind))
        return folder

    def check_outputs(self, problem: Problem, kind: str, outputs: Path, *, what: str) -> None:
        """Compare what a device computed for one instance.

        Raises:
          Refusal: as ``check``.
        """
        self._ask(problem, requests.CheckOutputs(kind=kind, folder=outputs), f"{what}, timed: ")

    def check(
        self, problem: Problem, artefact: Artefact, *, deep: bool = False, execute: Execute | None = None
    ) -> Parity:
        """Run every check; the first that fails is raised.

        The program's Mosaic modules are executed on the CPU, or the whole program on a device by ``execute``.

        Raises:
          Refusal: ``WRONG_VALUES``, ``NOT_FINITE``, ``INSENSITIVE``, ``NON_DETERMINISTIC``, ``OUT_OF_BOUNDS``,
            ``MEMORY_HAZARD``, ``INPUTS_CHANGED``, ``DEADLOCK`` or ``CANNOT_VERIFY``.
        """
        self.prepare(problem, whole=deep)
        program = self.workers.folder("candidate.bin")
        paths.write(program, artefact.program)
        kinds = instances.kinds_of(problem)
        answers: dict[str, Record] = {}
        try:
            outputs = execute(program, self.write_inputs(problem, kinds), kinds) if execute else None
            for number, kind in enumerate(kinds):
                self.progress(f"{kind}: {what(kind, problem)}")
                request: requests.ValuesRequest = requests.CheckProgram(
                    program=program, kind=kind, whole=deep, then=kinds[number + 1 :]
                )
                if outputs is not None:
                    request = requests.CheckOutputs(kind=kind, folder=outputs / kind, whole=deep)
                answers[kind] = self._asking.ask(problem, request)
                passed(answers[kind], prefix=f"{kind} inputs ({what(kind, problem)}): ")
                if left_out := _left_out(answers[kind]):
                    self.progress(f"{kind}{left_out}")
            if deep:
                self.progress("again, parallel grid dimensions in a third order")
                repeat = requests.CheckProgram(program=program, kind="random", order=2)
                answers["repeat"] = self._asking.ask(problem, repeat)
                passed(answers["repeat"])
        finally:
            self._write_evidence(artefact, answers)
        parity = _parity_of(kinds, answers)
        self.executed = _executed_of(parity, answers["random"]) if execute is None else None
        return parity

    def _write_evidence(self, artefact: Artefact, answers: Mapping[str, Record]) -> None:
        """What was executed and found, with the versions of module and compiler, beside the compiler's texts."""
        if self.evidence is None:
            return
        shown = ("status", "message", "worst", "rms", "floor_rms", "rows", "of_rows", "seconds")
        first: Mapping[str, Any] = next(iter(answers.values()), {})
        document = {
            "program_sha256": hashlib.sha256(artefact.program).hexdigest(),
            "mosaic_module_version": first.get("module_version"),
            "compiler": self.compiler or compiler_version(),
            "operations": first.get("operations", []),
            "checks": {name: {key: answer[key] for key in shown if key in answer} for name, answer in answers.items()},
        }
        paths.make_folder(self.evidence)
        paths.write(self.evidence / "verification.json", (json.dumps(document, indent=1) + "\n").encode())


def _computed(program: Path, operands: Sequence[ComputedOperand]) -> requests.Computed:
    wanted = computed_operands.wanted(operands)
    return requests.Computed(program=program, operands={site: tuple(numbers) for site, numbers in wanted.items()})


def _parity_of(kinds: Sequence[str], answers: Mapping[str, Record]) -> Parity:
    """The values of checks that passed; ``answers`` by kind, and ``repeat``."""
    checks = [
        f"{kind}: error {answers[kind]['worst']:.2f} of its allowance in {answers[kind]['seconds']:.1f} s"
        + _left_out(answers[kind])
        for kind in kinds
    ]
    if "repeat" in answers:
        checks.append(f"repeat: {answers['repeat']['message']}")
    return Parity(
        checks=tuple(checks),
        worst_error=max(answers[kind]["worst"] for kind in kinds),
        rms_error=answers["random"]["rms"],
        floor_rms_error=answers["random"]["floor_rms"],
        module_version=answers["random"].get("module_version", 0),
        seconds=sum(answer["seconds"] for answer in answers.values()),
    )


def _left_out(answer: Record) -> str:
    """What of an instance was not asked: where the reference overflows or has lost its digits; and which rows."""
    share, count, of = answer.get("unasked", 0.0), answer.get("rows", 0), answer.get("of_rows", 0)
    unasked = f"; nothing is asked of {share:.2%} of the elements, where the reference itself is not stable"
    sampled = f"; {count} of {of} rows in float64, the others beside the reference in its own dtypes"
    return unasked * (share > 0) + sampled * (count > 0)


def _executed_of(parity: Parity, answer: Record) -> Executed:
    return Executed(
        parity=parity,
        control=control.decode(answer["control"]),
        modules=frozenset(answer["modules"]),
        is_steered=answer["is_steered"],
        code_sha256=answer["code_sha256"],
    )
