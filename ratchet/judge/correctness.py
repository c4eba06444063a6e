"""Correctness of an artefact against the frozen problem: what is asked of the values child, in which order."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ratchet import key
from ratchet.candidate.problem import Problem, encode
from ratchet.child import Child, Limits, Walls
from ratchet.compiler.environment import compiler_version
from ratchet.dump.beside import ComputedOperand
from ratchet.folder import read_file
from ratchet.judge import instances, parity, references
from ratchet.judge.arrays import read_arrays
from ratchet.judge.floor import products
from ratchet.values import Artefact, Parity, control, records
from ratchet.values.control import ControlFlow
from ratchet.values.records import Record
from ratchet.values.status import Refusal, Status

LIMITS = Limits(seconds=900, memory_bytes=20 << 30)
WORKER = "ratchet.judge.values_worker"

SECRET_BYTES = 32
PUBLIC = bytes(8)
"""The key of the inputs that steer a modelled run."""
ANSWER_BYTES = 64 << 20
ARRAYS_BYTES = 8 << 30
"""Of what the values child leaves, the most that is read."""

VIRTUAL_DEVICES = 4
"""CPU devices of the values child: a program on several chips is executed on as many of them."""

CHECKS = {
    "random": "the problem's own, and again for what must not matter",
    "fresh": "the problem's own inputs, of another seed",
    "probe": "a few rows made large: the output has to move as the reference does",
    "public": "those of the modelled run, whose tables follow from them",
    "mixed": "large, tiny, equal, zero and integer stripes, one dominating row in each",
}


def what(kind: str) -> str:
    """What a kind of instance asks, in words."""
    name, _, chip = kind.partition("-")
    return CHECKS[name].replace("a few rows", f"a few rows of what lies on chip {chip}") if chip else CHECKS[name]


Draw = tuple[dict[int | str, Any], list[dict[int | str, Any]]]
"""Of one draw of the inputs what steers, by position, and what XLA computes of it, per mesh index."""

Execute = Callable[[Path, Path, tuple[str, ...]], Path]
"""``execute(program, folder of inputs, kinds)``: runs a program on a device and returns the folder of its outputs."""


def start(workdir: Path) -> Child:
    """Start a values child; it answers any number of requests."""
    return Child(
        WORKER,
        directory=workdir,
        environment={"XLA_FLAGS": f"--xla_force_host_platform_device_count={VIRTUAL_DEVICES}"},
        walls=Walls(readable=(workdir.parent.resolve(),)),
    )


def private_folder(root: Path) -> Path:
    """``.ratchet`` in the repository: the judge's secret and cached references. Ignores itself in git."""
    folder = root / ".ratchet"
    try:
        folder.mkdir(exist_ok=True)
        if not (folder / ".gitignore").exists():
            (folder / ".gitignore").write_text("*\n")
    except OSError as error:
        raise Refusal(
            Status.LEDGER_UNWRITABLE, f"cannot write {folder.name}/: {error.strerror}; make it writable"
        ) from None
    return folder


def secret_of(root: Path) -> bytes:
    """The clone's own secret, from which all seeds follow; made anew where it is lost. It stays with the judge.

    What is in the tree is not it: with this machine's key it makes the secret, so reading or choosing it is no use.
    """
    path = private_folder(root) / "secret"
    if path.is_symlink() or not path.is_file() or path.stat().st_size != SECRET_BYTES:
        beside = path.with_name(f"secret.{os.getpid()}")
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(descriptor, secrets.token_bytes(SECRET_BYTES))
        os.fsync(descriptor)
        os.close(descriptor)
        beside.replace(path)
    own, stored = key.known(), read_file(path, SECRET_BYTES)
    return own.digest("secret", stored) if own else stored


class Workers(Protocol):
    """What is needed of ``ratchet.judge.workers.Workers``."""

    @property
    def values(self) -> Child: ...
    def folder(self, name: str) -> Path: ...


@dataclass(frozen=True, kw_only=True)
class Executed:
    """What came of executing a program that passed every check."""

    parity: Parity
    control: ControlFlow
    modules: frozenset[str]
    is_steered: bool
    code_sha256: str


@dataclass(kw_only=True)
class Examiner:
    """Asks the values child."""

    workers: Workers
    root: Path
    evidence: Path | None = None
    """Where ``verification.json`` goes."""
    compiler: str = ""
    """What compiles the program, where it is not the TPU's."""
    progress: Callable[[str], None] = lambda text: None
    limits: Limits = LIMITS
    modules: frozenset[str] = frozenset()
    """Digests of the Mosaic modules that were executed."""
    is_steered: bool = False
    """Whether scalars that are read from memory may decide what the candidate does."""
    code_sha256: str = ""
    """Digest of the candidate's code, with tokens for its author's names and places; empty before it has passed."""
    known: dict[tuple[str, ...], Executed] = field(default_factory=dict)
    """Programs that passed, by problem, digest and checks: one that is judged for several chips is executed once."""
    _executed: dict[str, ControlFlow] = field(default_factory=dict, repr=False)
    _asking: Any = field(default_factory=threading.RLock, repr=False)
    """The child answers one request at a time. The schedule machine's values are asked for beside the checks."""
    _known: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def executed(self) -> ControlFlow:
        """Which way the candidate went on the inputs whose steering values are those of the modelled run: the random
        ones, or the public ones where tables follow from floats."""
        return self._executed.get("public") or self._executed.get("random") or ControlFlow()

    def _cache(self, problem: Problem) -> Path:
        """References belong to a problem, to the code that made them, and to the secret that their inputs came from."""
        owner = hashlib.sha256(b"references" + secret_of(self.root)).hexdigest()[:8]
        return private_folder(self.root) / "references" / f"{problem.short}-{_method()}-{owner}"

    def _lent(self, problem: Problem) -> Path:
        """What of it is there and was made here, where the values child can read it."""
        return references.lend(self._cache(problem), self.workers.values.directory / "references")

    def _ask(self, mode: str, problem: Problem, **more: Any) -> Record:
        with self._asking:
            return self._asked(mode, problem, **more)

    def _asked(self, mode: str, problem: Problem, **more: Any) -> Record:
        child, lent = self.workers.values, self._lent(problem)
        folder = child.request()
        (folder / "problem.lock.json").write_bytes(encode(problem))
        request = {
            "mode": mode,
            "lock": str(folder / "problem.lock.json"),
            "secret": secret_of(self.root).hex(),
            "cache": str(lent),
            **more,
        }
        (folder / "request.json").write_text(json.dumps(request))
        ending = child.ask(folder, self.limits)
        references.collect(lent, self._cache(problem))
        if ending.how == "answered":
            return answer_in(folder / "answer.json")
        reasons = {
            "timeout": f"did not finish in {self.limits.seconds:.0f} s",
            "memory": f"used more than {self.limits.memory_bytes >> 30} GiB",
            "disk": "wrote more than it may",
            "died": f"died: {(ending.tail.strip().splitlines() or ['it printed nothing'])[-1]:.300}",
        }
        raise Refusal(Status.CANNOT_VERIFY, f"executing the kernel for its values {reasons[ending.how]}")

    def step(
        self, problem: Problem, artefact: Artefact, *, freeze: bool, deep: bool, execute: Execute | None = None
    ) -> tuple[Parity, str]:
        """A step of a verdict: every check, with a summary; a problem frozen now is checked first."""
        if freeze:
            self.prepare(problem)
            self.check_problem(problem)
        parity = self._known_or_checked(problem, artefact, deep=deep, execute=execute)
        return parity, (
            f"{len(parity.checks)} checks in {parity.seconds:.1f} s, worst error {parity.worst_error:.2f} of its "
            f"allowance, rms {parity.rms_error:.1e} (plain XLA {parity.floor_rms_error:.1e})"
        )

    def _known_or_checked(self, problem: Problem, artefact: Artefact, *, deep: bool, execute: Execute | None) -> Parity:
        key = (problem.short, hashlib.sha256(artefact.program).hexdigest(), str(deep))
        if execute is not None:
            return self.check(problem, artefact, deep=deep, execute=execute)
        if key not in self.known:
            parity = self.check(problem, artefact, deep=deep)
            self.known[key] = Executed(
                parity=parity,
                control=self._executed["random"],
                modules=self.modules,
                is_steered=self.is_steered,
                code_sha256=self.code_sha256,
            )
        known = self.known[key]
        self._executed["random"], self.modules = known.control, known.modules
        self.is_steered, self.code_sha256 = known.is_steered, known.code_sha256
        return known.parity

    def counted_flops(self, problem: Problem) -> float:
        """FLOPs of the reference as written; 0, for not known, where its products alone are as many as claimed."""
        if problem.flops <= sum(products(problem).values()):
            return 0.0
        known = f"flops {problem.short}"
        if known not in self._known:
            self._known[known] = float(_raise_unless_pass(self._ask("flops", problem))["flops"])
        return float(self._known[known])

    def steering(self, problem: Problem) -> dict[int | str, Any]:
        """The inputs that may steer a kernel's loops, by position (see ``instances.steering``).

        They come from a public key, so that a modelled latency is the same in every clone; ``random`` and the probes
        hold the same, so that what a kernel does in the modelled run is what it is checked for.
        """
        known = f"steering {problem.short}"
        if known not in self._known:
            some = instances.steering(problem.inputs)
            self._known[known] = self.draws(problem, None, (), [PUBLIC])[0][0] if some else {}
        return dict(self._known[known])

    def computed(
        self, problem: Problem, program: Path, operands: Sequence[ComputedOperand]
    ) -> tuple[list[dict[int | str, Any]], bool]:
        """What XLA computes of the kernels' operands, per mesh index by ``"launch:place"``, from public inputs.

        Also whether secret floats give the same. If not, the program is checked on the public inputs, too: what the
        modelled run does has to be right.

        Raises:
          Refusal: as ``check``, and ``SCHEDULE_UNKNOWN`` where the operands have no one value.
        """

        path = self.workers.values.request() / "beside.npz"
        same = _raise_unless_pass(
            self._ask("beside", problem, program=str(program), wanted=_wanted(operands), path=str(path)),
        )["same"]
        if not same:
            self.prepare(problem, ["public"])
            self.progress("public: the inputs of the modelled run, whose tables follow from floats")
            answer = self._ask("check", problem, kind="public", program=str(program), order=0)
            _raise_unless_pass(answer, prefix=f"public inputs ({CHECKS['public']}): ")
            self._executed["public"] = control.decode(answer["control"])
        stored = read_arrays(path, ARRAYS_BYTES)
        _raise_unless_equal_shapes(operands, stored)
        return [
            {f"{o.launch}:{o.place}": stored[f"{place}:{o.number}:{o.site}"] for o in operands}
            for place in range(problem.mesh.chips)
        ], same

    def draws(
        self, problem: Problem, program: Path | None, operands: Sequence[ComputedOperand], seeds: Sequence[bytes]
    ) -> list[Draw]:
        """For inputs with each of these keys what steers, as ``steering`` and, per mesh index, ``computed`` have it.

        Raises:
          Refusal: as ``computed``.
        """

        path = self.workers.values.request() / "draws.npz"
        asked = {"program": str(program), "wanted": _wanted(operands), "seeds": [seed.hex() for seed in seeds]}
        _raise_unless_pass(self._ask("draws", problem, path=str(path), **asked))
        stored = read_arrays(path, ARRAYS_BYTES)
        return [
            (
                {position: stored[f"{number}:input{position}"] for position in instances.steering(problem.inputs)},
                [
                    {f"{o.launch}:{o.place}": stored[f"{number}:{place}:{o.number}:{o.site}"] for o in operands}
                    for place in range(problem.mesh.chips)
                ]
                if operands
                else [],
            )
            for number in range(len(seeds))
        ]

    def prepare(self, problem: Problem, kinds: Sequence[str] = ()) -> None:
        """Compute the references that are not cached yet, by default those of every check."""
        for kind in kinds or instances.kinds(problem.mesh):
            with self._asking:
                there = (self._lent(problem) / f"{kind}{references.SUFFIX}").exists()
            if not there:
                self.progress(f"reference in float64, once per problem: {kind}")
                _raise_unless_pass(self._ask("reference", problem, kind=kind))

    def check_problem(self, problem: Problem) -> None:
        """Refuse a problem that a constant would pass.

        Raises:
          Refusal: ``WEAK_PROBLEM`` or ``CONTRACT``.
        """
        self.progress("would a constant pass this problem?")
        _raise_unless_pass(self._ask("weak", problem))

    def write_inputs(self, problem: Problem, kinds: Sequence[str]) -> Path:
        """A folder that holds the arrays of each instance, for a device to load."""
        folder = self.workers.values.request()
        for kind in kinds:
            _raise_unless_pass(self._ask("inputs", problem, kind=kind, folder=str(folder / kind)))
        return folder

    def check_outputs(self, problem: Problem, kind: str, outputs: Path, *, what: str) -> None:
        """Compare what a device computed for one instance.

        Raises:
          Refusal: as ``check``.
        """
        _raise_unless_pass(self._ask("outputs", problem, kind=kind, folder=str(outputs)), prefix=f"{what}, timed: ")

    def check(
        self, problem: Problem, artefact: Artefact, *, deep: bool = False, execute: Execute | None = None
    ) -> Parity:
        """Run every check; the first that fails is raised.

        The program's Mosaic modules are executed on the CPU, or the whole program on a device by ``execute``.

        Raises:
          Refusal: ``WRONG_VALUES``, ``NOT_FINITE``, ``INSENSITIVE``, ``NON_DETERMINISTIC``, ``OUT_OF_BOUNDS``,
            ``MEMORY_HAZARD``, ``INPUTS_CHANGED``, ``DEADLOCK`` or ``CANNOT_VERIFY``.
        """
        self.prepare(problem)
        program = self.workers.folder("candidate.bin")
        program.write_bytes(artefact.program)
        kinds = instances.kinds(problem.mesh)
        done: list[str] = []
        answers: dict[str, Record] = {}
        try:
            outputs = execute(program, self.write_inputs(problem, kinds), kinds) if execute else None
            for kind in kinds:
                self.progress(f"{kind}: {what(kind)}")
                if outputs is not None:
                    answer = answers[kind] = self._ask("outputs", problem, kind=kind, folder=str(outputs / kind))
                else:
                    answer = answers[kind] = self._ask("check", problem, kind=kind, program=str(program), order=0)
                _raise_unless_pass(answer, prefix=f"{kind} inputs ({what(kind)}): ")
                done.append(f"{kind}: error {answer['worst']:.2f} of its allowance in {answer['seconds']:.1f} s")
            if deep:
                self.progress("again, parallel grid dimensions in a third order")
                answer = answers["repeat"] = self._ask("check", problem, kind="random", program=str(program), order=2)
                _raise_unless_pass(answer)
                done.append(f"repeat: {answer['message']}")
        finally:
            self._write_evidence(artefact, answers)
        if "control" in answers["random"]:
            self._executed["random"] = control.decode(answers["random"]["control"])
            self.modules = frozenset(answers["random"]["modules"])
            self.is_steered = bool(answers["random"]["is_steered"])
            self.code_sha256 = str(answers["random"]["code_sha256"])
        return Parity(
            checks=tuple(done),
            worst_error=max(answers[kind]["worst"] for kind in kinds),
            rms_error=answers["random"]["rms"],
            floor_rms_error=answers["random"]["floor_rms"],
            module_version=answers["random"].get("module_version", 0),
            seconds=sum(answer["seconds"] for answer in answers.values()),
        )

    def _write_evidence(self, artefact: Artefact, answers: Mapping[str, Record]) -> None:
        """What was executed and found, with the versions of module and compiler, beside the compiler's texts."""
        if self.evidence is None:
            return
        shown = ("status", "message", "worst", "rms", "floor_rms", "seconds")
        first: Mapping[str, Any] = next(iter(answers.values()), {})
        document = {
            "program_sha256": hashlib.sha256(artefact.program).hexdigest(),
            "mosaic_module_version": first.get("module_version"),
            "compiler": self.compiler or compiler_version(),
            "operations": first.get("operations", []),
            "checks": {name: {key: answer[key] for key in shown if key in answer} for name, answer in answers.items()},
        }
        self.evidence.mkdir(parents=True, exist_ok=True)
        (self.evidence / "verification.json").write_text(json.dumps(document, indent=1) + "\n")


def _wanted(operands: Sequence[ComputedOperand]) -> dict[str, list[int]]:
    wanted: dict[str, list[int]] = {}
    for one in operands:
        wanted.setdefault(one.site, []).append(one.number)
    return wanted


def _raise_unless_equal_shapes(operands: Sequence[ComputedOperand], stored: Mapping[str, Any]) -> None:
    for one in operands:
        shape = stored[f"0:{one.number}:{one.site}"].shape
        if shape != one.type.shape:
            raise Refusal(
                Status.SCHEDULE_UNKNOWN,
                f"operand {one.place} of {one.launch} is {one.type} in the compiled program, the artefact's call has "
                f"{list(shape)} there: the compiler reordered or reshaped the operands of a kernel",
            )


def _method() -> str:
    """Digest of the code that makes instances and floors: what it made before it changed is not used again."""
    sources = (Path(module.__file__ or "").read_bytes() for module in (instances, parity))
    return hashlib.sha256(b"".join(sources)).hexdigest()[:8]


def answer_in(path: Path) -> Record:
    """What a values child left, every field checked.

    Raises:
      Refusal: ``CANNOT_VERIFY`` where that is no answer.
    """
    try:
        return records.read(read_file(path, ANSWER_BYTES), _KINDS, _no_answer)
    except (OSError, ValueError) as error:
        raise _no_answer(str(error)) from None


def _no_answer(why: str) -> Refusal:
    return Refusal(Status.CANNOT_VERIFY, f"the process that executes for values left no usable answer: {why:.200}")


def _is_control(value: Any) -> bool:
    try:
        control.decode(value)
    except ValueError:
        return False
    return True


_KINDS = {
    "status": records.is_status,
    "message": records.is_text,
    "seconds": records.is_seconds,
    "worst": records.is_real,
    "rms": records.is_real,
    "floor_rms": records.is_real,
    "flops": records.is_real,
    "same": records.is_truth,
    "module_version": records.is_count,
    "modules": records.is_texts,
    "is_steered": records.is_truth,
    "code_sha256": records.is_text,
    "operations": records.is_texts,
    "control": _is_control,
}
"""Fields of an answer."""


def _raise_unless_pass(answer: Record, prefix: str = "") -> Record:
    if answer["status"] != Status.PASS.name:
        raise Refusal(Status[answer["status"]], prefix + answer["message"])
    return answer
