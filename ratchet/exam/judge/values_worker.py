"""The child process that computes values: the reference's (``reference.py``), and the candidate program's.

No candidate Python is here: the reference is a frozen program and the candidate's kernel is executed by
``ratchet.tpu.mosaic`` from the very program that is compiled for the TPU.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import itertools
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from ratchet.exam.problem import instances, parity, rows
from ratchet.exam.problem.floor import products
from ratchet.exam.problem.inputs import Inputs, Instance, are_few
from ratchet.exam.problem.problem import Problem, decode
from ratchet.exam.problem.programs import Arrays, Programs
from ratchet.exam.problem.reference import Reference, References
from ratchet.process.concurrency.background import Meanwhile
from ratchet.process.sandbox import system
from ratchet.process.sandbox.child import serve
from ratchet.tpu.compiler.tokens import tokenise
from ratchet.tpu.mlir.bindings import lapack_where_called
from ratchet.tpu.mosaic import computed_operands
from ratchet.tpu.mosaic import run as mosaic
from ratchet.tpu.mosaic.findings import Finding
from ratchet.values import control
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import TokenTable

SECRETS = 2
SMALL_FLOPS, SMALL_ELEMENTS = 1e9, 1 << 20
"""Of a reference, and of its inputs and outputs, that is tried on other secrets when its problem is frozen: a second
each. A larger one has as many chances in its many elements."""
BESIDE_BYTES = 1 << 29
"""Inputs and outputs of a program that is executed on two instances at a time, at most: each has its own memory."""

Compared = list[parity.Comparison]
"""Of every output, then of every replica that differs. Empty where there are findings, or no reference yet."""


class Values:
    """Keeps what several requests share: what checks compare with, and the loaded candidate."""

    def __init__(self) -> None:
        self.programs = Programs()
        self.inputs = Inputs(self.programs)
        self.references = References(self.inputs)
        self._candidate: tuple[str, mosaic.Loaded, TokenTable] | None = None
        self._random_outputs: Arrays = []
        self._meanwhile: Meanwhile[tuple[mosaic.RunResult, Compared]] = Meanwhile()

    def check(self, instance: Instance, *, program: bytes, order: int = 0, then: Iterable[str] = ()) -> dict[str, Any]:
        """Run the candidate's program on one instance and compare. Returns the answer as plain JSON.

        The instances ``then`` will be asked for next: the program is executed on them beside this.
        """
        if not self.references.has_made:  # they take blocks of all sizes: all of that and a program's is too much
            system.keep_memory()
        kind = instance.kind
        # Once, with what must not matter changed; a finding names the cause of values that are wrong for it.
        hazards = kind == "random" and not order
        _, loaded, tokens = self._load(program, late_first=hazards)
        if hazards:
            loaded.begin_check()
        wanted = [instance.of_kind(other) for other in then]
        executed_beside = self._begin_beside(wanted, loaded)
        reference = self.references.of(instance)
        with _explained(tokens):
            done = None if hazards or order else self._meanwhile.take(instance.name)
            if done is None:
                arrays = self.inputs.of(instance)
                if not executed_beside:
                    self.inputs.begin(wanted)
                seed = order or _order(kind, loaded)
                once = functools.partial(loaded.executed.run, seed=seed)
                done = (loaded.check(arrays, at_once=True) if hazards else once(arrays)), []
            result, compared = done
        about = {
            "module_version": loaded.module_version,
            "operations": loaded.covered,
            "control": control.encode(result.control),
            "modules": loaded.modules_sha256,
            "is_steered": loaded.is_steered,
            "code_sha256": loaded.sha256,
        }
        answer = self._compare(instance, reference, result, compared, order=order)
        if answer["status"] != Status.PASS.name and not order and _order(kind, loaded):
            with _explained(tokens):
                cause = loaded.check(self.inputs.of(instance))
            answer |= _found(cause.findings) if cause.findings else {}
        return answer | about | {"message": tokens.explain(answer["message"])}

    def _begin_beside(self, wanted: Sequence[Instance], loaded: mosaic.Loaded) -> bool:
        """Execute the program on these instances in another thread, and compare what comes of it; whether that is done.

        On several chips executions take turns; what comes before and after one runs beside what else there is to do.
        """
        if any(instance.problem.compulsory_bytes > BESIDE_BYTES for instance in wanted):
            return False
        loaded.executed.compiled()

        def run(instance: Instance) -> tuple[mosaic.RunResult, Compared]:
            arrays = self.inputs.of(instance)
            result = loaded.executed.run(arrays, seed=_order(instance.kind, loaded))
            if result.findings or not instance.file.exists():  # who asks for a reference makes it
                return result, []
            return result, _compared(instance, result, self.references.of(instance))

        self._meanwhile.begin({instance.name: functools.partial(run, instance) for instance in wanted})
        return True

    def _compare(
        self,
        instance: Instance,
        reference: Reference,
        result: mosaic.RunResult,
        compared: Compared,
        *,
        order: int = 0,
    ) -> dict[str, Any]:
        if result.findings:
            return _found(result.findings)
        problem, kind = instance.problem, instance.kind
        exact, losses = reference.exact, reference.losses
        outputs = [np.asarray(a) for a in result.outputs]
        if order and self._random_outputs and kind == "random":
            return self._repeat(outputs)
        if kind == "random":
            self._random_outputs = outputs
        if instances.is_probe(kind) and self._random_outputs:
            before = self.references.of(instance.of_kind("random")).exact_of(problem, reference.numbers)
            some = (rows.of(problem, both, reference.numbers) for both in (self._random_outputs, outputs))
            for index, five in enumerate(zip(*some, before, exact, losses, strict=True)):
                if still := parity.insensitive(*five):
                    count = exact[index].size // max(1, *exact[index].shape[-1:])
                    return _answered(
                        Status.INSENSITIVE,
                        f"{still} of {count} rows of output {index} stand still although "
                        "inputs that they depend on changed: is part of the work skipped?",
                    )
        compared = compared or _compared(instance, result, reference)
        count, more = 0, Compared()
        if reference.numbers is not None and all(one.status is Status.PASS for one in compared):
            count, more = self._standing_out(instance, result, reference)
        worst = max((*compared, *more), key=lambda c: c.worst)
        copy, index = divmod((more if worst in more else compared).index(worst), len(outputs))
        which = f"output {index}" + (", as not all chips hold it" if copy else "")
        answer = _answered(worst.status, f"{which}: {worst.message}")
        unasked = sum(int(np.isinf(loss).sum()) for loss in losses) / max(1, sum(loss.size for loss in losses))
        answer |= {"worst": worst.worst, "rms": worst.rms, "floor_rms": worst.floor_rms, "unasked": unasked}
        if reference.numbers is not None:
            answer |= {"rows": reference.numbers.size + count, "of_rows": rows.length(problem)}
        return answer

    def _standing_out(self, instance: Instance, result: mosaic.RunResult, reference: Reference) -> tuple[int, Compared]:
        """How many rows that are not known in float64 stand out from the reference's own dtypes; they are compared."""
        found = [
            rows.standing_out(np.asarray(got), known)
            for own in (result.outputs, *result.replicas)
            for got, known in zip(own, reference.known(instance.problem), strict=True)
        ]
        picked = functools.reduce(np.union1d, found)
        if not picked.size:
            return 0, []
        more = self.references.more(instance, picked, reference.native)
        return picked.size, _compared(instance, result, more, picked=True)

    def outputs(self, instance: Instance, *, folder: Path) -> dict[str, Any]:
        """Compare outputs that a device computed, one file of bytes each in ``folder``."""
        outputs = [
            np.fromfile(folder / f"output{number}.bin", np.uint8).view(jnp.dtype(spec.dtype)).reshape(spec.shape)
            for number, spec in enumerate(instance.problem.outputs)
        ]
        return self.judged(instance, outputs)

    def judged(self, instance: Instance, outputs: Arrays) -> dict[str, Any]:
        """Compare outputs, as ``check`` does those of a program."""
        return self._compare(instance, self.references.of(instance), _result_of(outputs), [])

    def write_inputs(self, instance: Instance, folder: Path) -> dict[str, Any]:
        """Write the arrays of one instance to ``folder``, one file of bytes each."""
        folder.mkdir(parents=True)
        for number, array in enumerate(self.inputs.of(instance)):
            np.ascontiguousarray(array).view(np.uint8).tofile(folder / f"input{number}.bin")
        return _answered(Status.PASS, "")

    def _check_again(self, random: Instance) -> None:
        """The native reference passes on other secrets, too, for a problem small enough to ask: see ``made``."""
        problem = random.problem
        elements = sum(math.prod(spec.shape) for spec in (*problem.inputs, *problem.outputs))
        if elements > SMALL_ELEMENTS or _reference_flops(problem) > SMALL_FLOPS:
            return
        for number in range(SECRETS):
            other = hashlib.sha256(random.secret + b"another" + bytes([number])).digest()
            for kind in instances.kinds(problem.mesh, problem.mixed_axes):
                self.references.made(replace(random, kind=kind, secret=other))

    def _repeat(self, outputs: Arrays) -> dict[str, Any]:
        for index, (first, second) in enumerate(zip(self._random_outputs, outputs, strict=True)):
            if first.tobytes() != second.tobytes():
                differing = int(np.sum(first != second))
                return _answered(
                    Status.NON_DETERMINISTIC,
                    f"output {index} differs in {differing} of {first.size} elements when the parallel grid "
                    "dimensions run in another order",
                )
        return _answered(Status.PASS, "the same to the last bit in another order of the parallel grid dimensions")

    def beside(self, random: Instance, *, program: bytes, wanted: dict[str, list[int]], path: Path) -> dict[str, Any]:
        """Write the operands of kernels that the program computes from public inputs, per mesh index, to ``path``.

        The answer says whether the random instance, with its secret floats, gives the same.
        """
        _, loaded, tokens = self._load(program)
        instances_of = [self.inputs.public(random.problem), self.inputs.of(random)]
        with _explained(tokens):
            public, secret = computed_operands.operands(loaded, instances_of, wanted)
        named = {f"{place}:{number}:{site}": a for place, s in enumerate(public) for (site, number), a in s.items()}
        np.savez(path, **named)  # type: ignore[arg-type]
        same = all(a.tobytes() == secret[n][key].tobytes() for n, s in enumerate(public) for key, a in s.items())
        return _answered(Status.PASS, "") | {"same": same}

    def draws(
        self, problem: Problem, *, seeds: list[str], program: str, wanted: dict[str, list[int]], path: Path
    ) -> dict[str, Any]:
        """Write what steers, and the operands that the program computes, of inputs with these keys to ``path``."""
        keys = [np.frombuffer(bytes.fromhex(seed), np.uint32) for seed in seeds]
        steering = instances.steering(problem.inputs)
        named: dict[str, Any] = {}
        for number, key in enumerate(keys):
            arrays = self.programs.drawn(problem, key, only=steering)
            named |= {f"{number}:input{position}": array for position, array in zip(steering, arrays, strict=True)}
        if wanted:
            _, loaded, tokens = self._load(Path(program).read_bytes())
            with _explained(tokens):
                computed = computed_operands.operands(
                    loaded, [self.programs.drawn(problem, key) for key in keys], wanted
                )
            for number, per_place in enumerate(computed):
                for place, one in enumerate(per_place):
                    named |= {f"{number}:{place}:{operand}:{site}": array for (site, operand), array in one.items()}
        np.savez(path, **named)  # type: ignore[arg-type]
        return _answered(Status.PASS, "")

    def _load(self, program: bytes, *, late_first: bool = False) -> tuple[str, mosaic.Loaded, TokenTable]:
        digest = hashlib.sha256(program).hexdigest()
        if self._candidate is None or self._candidate[0] != digest:
            self._meanwhile.forget()
            self._candidate, self._random_outputs = (digest, *_loaded(program, late_first)), []
        return self._candidate

    def _would_pass(self, instance: Instance, reference: Reference, outputs: Iterable[Any]) -> bool:
        """Whether these outputs, cast to the problem's dtypes, would pass."""
        pairs = zip(outputs, instance.problem.outputs, strict=True)
        answers = [array.astype(jnp.dtype(spec.dtype)) for array, spec in pairs]
        known = rows.of(instance.problem, answers, reference.numbers), reference.exact, reference.losses
        if not all(itertools.starmap(parity.passes, zip(*known, strict=True))):
            return False
        if reference.numbers is None:
            return True
        _, more = self._standing_out(instance, _result_of(answers), reference)
        return all(one.status is Status.PASS for one in more)

    def weak(self, random: Instance) -> dict[str, Any]:
        """Whether an answer that computes nothing would pass, on the random instance."""
        problem, reference = random.problem, self.references.of(random)
        exact, numbers = reference.exact, reference.numbers
        arrays = self.inputs.of(random)

        def passes(outputs: Iterable[Any]) -> bool:
            return self._would_pass(random, reference, outputs)

        def constants(values: Iterable[Any]) -> Iterator[Any]:
            return (np.full(spec.shape, value) for spec, value in zip(problem.outputs, values, strict=True))

        guesses = {"zeros": [0.0] * len(exact), "ones": [1.0] * len(exact)}
        if passes(constants(map(np.mean, exact))):  # a single number is its own mean, but not that of other inputs
            draws = self.inputs.public(problem), self.inputs.of(random.of_kind("fresh-mean"))
            made = [self.programs.exact(problem, draw, numbers)[: len(exact)] for draw in draws]
            means = [[float(np.mean(array)) for array in outputs] for outputs in made]
            if all(passes(constants(values)) for values in means):  # one other draw comes near by chance, now and then
                guesses["the reference's mean"] = means[0]
        for name, values in guesses.items():
            if passes(constants(values)):
                return _answered(
                    Status.WEAK_PROBLEM, f"{name} would pass this problem; wanted inputs that tell it apart"
                )
        for position, array in enumerate(arrays):
            if len(exact) != 1 or array.shape != problem.outputs[0].shape or _elsewhere(problem, position):
                continue
            if passes([array]):
                return _answered(Status.WEAK_PROBLEM, f"a copy of input {position} would pass this problem")
        self._check_again(random)
        return _answered(Status.PASS, "zeros, constants and copies of inputs fail it, as they should")


def _result_of(outputs: Arrays) -> mosaic.RunResult:
    """Outputs that no execution here made."""
    return mosaic.RunResult(outputs=tuple(outputs), findings=(), seconds=0.0)


def _order(kind: str, loaded: mosaic.Loaded) -> int:
    """The order in which the steps of parallel grid dimensions run on an instance: another one on the probes.

    What memory held is NaN there, which the other order on the random inputs is tried without (``hazards.check``).
    """
    return mosaic.SCATTERED if instances.is_probe(kind) and loaded.has_orders else 0


def _found(findings: Sequence[Finding]) -> dict[str, Any]:
    first, *more = findings
    return _answered(first.kind.status, str(first) + (f" (and {len(more)} more)" if more else ""))


def _compared(instance: Instance, result: mosaic.RunResult, reference: Reference, *, picked: bool = False) -> Compared:
    """How outputs compare; of chips that ought to hold the same each has to be right."""
    alike, three = instance.kind == instances.SIGNED, (reference.exact, reference.losses, reference.counts)
    numbers, axes = reference.numbers, rows.axes(instance.problem)
    parts = [None if numbers is None else parity.Part(axis=axis, rows=numbers, picked=picked) for axis in axes]
    return [
        parity.compare(got, exact, loss, alike=alike, counts=counts, part=part)
        for own in (result.outputs, *result.replicas)
        for got, exact, loss, counts, part in zip(rows.of(instance.problem, own, numbers), *three, parts, strict=True)
    ]


def _elsewhere(problem: Problem, position: int) -> bool:
    """Whether the output lies on other chips than an input: then a copy of it there is work, and is examined."""
    where = problem.output_splits[0] if problem.output_splits else None
    if problem.mesh.chips == 1 or where is None:
        return False
    rank = len(problem.outputs[0].shape)
    given = (*problem.mesh.inputs[position], *((),) * rank)[:rank]
    return tuple(where) != tuple(given)


@contextlib.contextmanager
def _explained(tokens: TokenTable) -> Iterator[None]:
    """Refusals in this context name the author's places, not their tokens."""
    try:
        yield
    except Refusal as refusal:
        raise Refusal(refusal.status, tokens.explain(refusal.message)) from None


def _loaded(program: bytes, late_first: bool) -> tuple[mosaic.Loaded, TokenTable]:
    """The program with the tokens that the compiler gets, translated; what the tokens stand for."""
    exported, tokens = tokenise(program)
    with _explained(tokens):
        return mosaic.translated(exported, mosaic.Options(), late_first=late_first), tokens


def _reference_flops(problem: Problem) -> float:
    """FLOPs of the reference as written, masked work and transcendental functions included; 0 if XLA has no count."""
    program = export.deserialize(bytearray(problem.reference_program))
    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in program.in_avals]
    analysis = jax.jit(program.call).lower(*avals).cost_analysis()
    counted = sum(float((analysis or {}).get(what, 0.0)) for what in ("flops", "transcendentals"))
    return counted and max(counted, float(sum(products(problem).values())))  # XLA counts the body of a loop once


def _answered(status: Status, message: str) -> dict[str, Any]:
    return {"status": status.name, "message": message}


_VALUES = Values()


def _answer(asked: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    """What is asked for by ``mode``."""
    mode, secret, cache = asked["mode"], bytes.fromhex(asked["secret"]), Path(asked["cache"])
    whole = asked.get("whole", False)
    instance = Instance(problem=problem, kind=asked.get("kind", "random"), secret=secret, cache=cache, whole=whole)
    if mode in ("begin", "reference"):
        if mode == "begin":
            _VALUES.inputs.of(instance)
            if are_few(problem):
                others = instances.kinds(problem.mesh, problem.mixed_axes)
                _VALUES.inputs.begin(instance.of_kind(kind) for kind in others if kind != instance.kind)
        else:
            _VALUES.references.begin(instance.of_kind(kind) for kind in asked.get("then", ()))
            _VALUES.references.of(instance)
        return _answered(Status.PASS, "")
    if mode == "outputs":
        return _VALUES.outputs(instance, folder=Path(asked["folder"]))
    if mode == "inputs":
        return _VALUES.write_inputs(instance, Path(asked["folder"]))
    if mode == "draws":
        given = {name: asked[name] for name in ("seeds", "program", "wanted")}
        return _VALUES.draws(problem, **given, path=Path(asked["path"]))
    if mode == "flops":
        return _answered(Status.PASS, "") | {"flops": _reference_flops(problem)}
    if mode == "weak":
        return _VALUES.weak(instance)
    program = Path(asked["program"]).read_bytes()
    if mode == "beside":
        path = Path(asked["path"])
        return _VALUES.beside(instance, program=program, wanted=asked["wanted"], path=path)
    given = {name: asked[name] for name in ("order", "then") if name in asked}
    return _VALUES.check(instance, program=program, **given)


def handle(request: Path) -> str:
    """Answer ``request/request.json``: a problem's lock, a kind, the secret, and for a check the program."""
    start = time.monotonic()
    asked = json.loads((request / "request.json").read_text())
    problem = decode(Path(asked["lock"]).read_bytes(), "the problem lock")
    try:
        answer = _answer(asked, problem)
    except Refusal as refusal:
        answer = _answered(refusal.status, refusal.message)
    except MemoryError as error:
        answer = _answered(Status.INFRASTRUCTURE, f"not enough memory to check the values here: {error}")
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        where = f" ({error.filename})" if error.filename else ""
        message = f"the judge cannot keep what it computed: {error.strerror or error}{where}"
        answer = _answered(Status.NO_SPACE if full else Status.INFRASTRUCTURE, f"{message}: free or repair that")
    (request / "answer.json").write_text(json.dumps(answer | {"seconds": time.monotonic() - start}))
    return "answer.json"


if __name__ == "__main__":
    system.reuse_memory()
    lapack_where_called()
    jnp.zeros(()).block_until_ready()  # open the CPU backend while the parent does other things
    serve(handle)
