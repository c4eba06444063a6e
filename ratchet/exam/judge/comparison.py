"""How outputs compare with what is known of their instance, as the answer of the values child.

A problem can be frozen if an answer that computes nothing does not pass it.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ratchet.exam.problem import instances, parity, rows
from ratchet.exam.problem.deviations import is_float
from ratchet.exam.problem.floor import products
from ratchet.exam.problem.inputs import PUBLIC, Inputs, Instance
from ratchet.exam.problem.problem import Problem
from ratchet.exam.problem.programs import Arrays
from ratchet.exam.problem.reference import Reference, References
from ratchet.tpu import exporting
from ratchet.tpu.mlir.bindings import stablehlo_of
from ratchet.tpu.mlir.flops import flops
from ratchet.tpu.mosaic import run as mosaic
from ratchet.tpu.mosaic.findings import Finding
from ratchet.values.status import Status

SECRETS = 2
DRAWN_UNITS = 8
"""Units in the last place of the largest by which two versions of JAX may draw a float otherwise."""
SMALL_FLOPS, SMALL_ELEMENTS = 1e9, 1 << 20
"""Of a reference, and of its inputs and outputs, that is tried on other secrets when its problem is frozen: a second
each. A larger one has as many chances in its many elements."""

Answer = dict[str, Any]
"""Plain JSON: ``responses.py`` names the fields."""
Compared = list[parity.Comparison]
"""Of every output, then of every replica that differs."""


class Comparer:
    """Compares outputs with references. Keeps those on the random inputs, from which others have to differ."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self.references = References(inputs)
        self._random_outputs: Arrays = []

    def forget(self) -> None:
        """Another program is next."""
        self._random_outputs = []

    def outputs(self, instance: Instance, outputs: Arrays) -> Answer:
        """The answer on outputs that were not executed here."""
        return self.result(instance, self.references.of(instance), _result_of(outputs))

    def result(self, instance: Instance, reference: Reference, result: mosaic.RunResult, *, order: int = 0) -> Answer:
        """The answer on what an execution gave; with an ``order`` it has to be what the check gave, bit by bit."""
        if result.findings:
            return found(result.findings)
        problem, kind = instance.problem, instance.kind
        outputs = [np.asarray(a) for a in result.outputs]
        if order and self._random_outputs and kind == "random":
            return self._repeated(outputs)
        if kind == "random":
            self._random_outputs = outputs
        if (
            instances.is_probe(kind)
            and self._random_outputs
            and (still := self._insensitive(instance, reference, outputs))
        ):
            return still
        compared = _compare(instance, result, reference)
        count, more = 0, Compared()
        if reference.numbers is not None and all(one.status is Status.PASS for one in compared):
            count, more = self._standing_out(instance, result, reference)
        worst = max((*compared, *more), key=lambda c: c.worst)
        copy, index = divmod((more if worst in more else compared).index(worst), len(outputs))
        which = f"output {index}" + (", as not all chips hold it" if copy else "")
        answer = answered(worst.status, f"{which}: {worst.message}")
        losses = reference.losses
        unasked = sum(int(np.isinf(loss).sum()) for loss in losses) / max(1, sum(loss.size for loss in losses))
        answer |= {"worst": worst.worst, "rms": worst.rms, "floor_rms": worst.floor_rms, "unasked": unasked}
        if reference.numbers is not None:
            answer |= {"rows": reference.numbers.size + count, "of_rows": rows.length(problem)}
        return answer

    def _insensitive(self, instance: Instance, reference: Reference, outputs: Arrays) -> Answer | None:
        """The answer where rows of a probe's outputs stand still although those of the reference move."""
        problem, exact = instance.problem, reference.exact
        before = self.references.of(instance.of_kind("random")).exact_of(problem, reference.numbers)
        some = (rows.of(problem, both, reference.numbers) for both in (self._random_outputs, outputs))
        for index, five in enumerate(zip(*some, before, exact, reference.losses, strict=True)):
            if still := parity.insensitive(*five):
                count = exact[index].size // max(1, *exact[index].shape[-1:])
                return answered(
                    Status.INSENSITIVE,
                    f"{still} of {count} rows of output {index} stand still although "
                    "inputs that they depend on changed: is part of the work skipped?",
                )
        return None

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
        return picked.size, _compare(instance, result, more, picked=True)

    def _repeated(self, outputs: Arrays) -> Answer:
        for index, (first, second) in enumerate(zip(self._random_outputs, outputs, strict=True)):
            if first.tobytes() != second.tobytes():
                differing = int(np.sum(first != second))
                return answered(
                    Status.NON_DETERMINISTIC,
                    f"output {index} differs in {differing} of {first.size} elements when the parallel grid "
                    "dimensions run in another order",
                )
        return answered(Status.PASS, "the same to the last bit in another order of the parallel grid dimensions")

    def _passes(self, instance: Instance, reference: Reference, outputs: Iterable[Any]) -> bool:
        """Whether these outputs, cast to the problem's dtypes, would pass."""
        pairs = zip(outputs, instance.problem.outputs, strict=True)
        cast = [array.astype(jnp.dtype(spec.dtype)) for array, spec in pairs]
        known = rows.of(instance.problem, cast, reference.numbers), reference.exact, reference.losses
        if any(parity.compare(*three).status is not Status.PASS for three in zip(*known, strict=True)):
            return False
        if reference.numbers is None:
            return True
        _, more = self._standing_out(instance, _result_of(cast), reference)
        return all(one.status is Status.PASS for one in more)

    def problem(self, random: Instance) -> Answer:
        """The answer on a problem that is to be frozen: zeros, constants and copies of an input must not pass."""
        problem, reference = random.problem, self.references.of(random)
        exact, numbers = reference.exact, reference.numbers
        arrays = self._inputs.of(random)

        def passes(outputs: Iterable[Any]) -> bool:
            return self._passes(random, reference, outputs)

        def constants(values: Iterable[Any]) -> Iterator[Any]:
            return (np.full(spec.shape, value) for spec, value in zip(problem.outputs, values, strict=True))

        guesses = {"zeros": [0.0] * len(exact), "ones": [1.0] * len(exact)}
        if passes(constants(map(np.mean, exact))):  # a single number is its own mean, but not that of other inputs
            draws = self._inputs.public(problem), self._inputs.of(random.of_kind("fresh-mean"))
            made = [self._inputs.programs.exact(problem, draw, numbers)[: len(exact)] for draw in draws]
            means = [[float(np.mean(array)) for array in outputs] for outputs in made]
            if all(passes(constants(values)) for values in means):  # one other draw comes near by chance, now and then
                guesses["the reference's mean"] = means[0]
        for name, values in guesses.items():
            if passes(constants(values)):
                message = f"{name} would pass this problem; wanted inputs that tell it apart"
                return answered(Status.WEAK_PROBLEM, message)
        for position, array in enumerate(arrays):
            if len(exact) != 1 or array.shape != problem.outputs[0].shape or _elsewhere(problem, position):
                continue
            if passes([array]):
                return answered(Status.WEAK_PROBLEM, f"a copy of input {position} would pass this problem")
        self._check_other_secrets(random)
        return answered(Status.PASS, "zeros, constants and copies of inputs fail it, as they should")

    def same_problem(self, random: Instance, other: Problem) -> Answer:
        """The answer on a problem that ought to be this one: it draws the same inputs, and its reference passes."""
        problem, programs = random.problem, self._inputs.programs
        for key in PUBLIC, np.frombuffer(random.secret[:8], np.uint32):
            for number, both in enumerate(zip(*(programs.drawn(one, key) for one in (problem, other)), strict=True)):
                if not _alike(*both):
                    message = f"generate_inputs draws another input {number} than the frozen one"
                    return answered(Status.PROBLEM_CHANGED, message)
        if other.reference_sha256 != problem.reference_sha256:
            outputs = programs.native(other, self._inputs.of(random))
            if not self._passes(random, self.references.of(random), outputs):
                return answered(Status.PROBLEM_CHANGED, "reference_fn computes something else than the frozen one")
        return answered(Status.PASS, "")

    def _check_other_secrets(self, random: Instance) -> None:
        """The native reference passes on other secrets, too, for a problem small enough to ask: see ``made``."""
        problem = random.problem
        elements = sum(math.prod(spec.shape) for spec in (*problem.inputs, *problem.outputs))
        if elements > SMALL_ELEMENTS or reference_flops(problem) > SMALL_FLOPS:
            return
        for number in range(SECRETS):
            other = hashlib.sha256(random.secret + b"another" + bytes([number])).digest()
            for kind in instances.kinds_of(problem):
                self.references.made(replace(random, kind=kind, secret=other))


def _compare(instance: Instance, result: mosaic.RunResult, reference: Reference, *, picked: bool = False) -> Compared:
    """How outputs compare; of chips that ought to hold the same each has to be right."""
    alike, three = instance.kind == instances.SIGNED, (reference.exact, reference.losses, reference.counts)
    numbers, axes = reference.numbers, rows.axes(instance.problem)
    parts = [None if numbers is None else parity.Part(axis=axis, rows=numbers, picked=picked) for axis in axes]
    return [
        parity.compare(got, exact, loss, alike=alike, counts=counts, part=part)
        for own in (result.outputs, *result.replicas)
        for got, exact, loss, counts, part in zip(rows.of(instance.problem, own, numbers), *three, parts, strict=True)
    ]


def _alike(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> bool:
    """Whether two programs drew the same: integers to the bit, floats within what another order of adding moves."""
    if not is_float(ours.dtype):  # shapes are known to be the same
        return bool(np.array_equal(ours, theirs))
    one, other = ours.astype(np.float64), theirs.astype(np.float64)
    largest = np.max(np.abs(one), initial=0.0, where=np.isfinite(one))
    unit = float(jnp.finfo(ours.dtype).eps) * largest
    return bool(np.allclose(other, one, rtol=0.0, atol=DRAWN_UNITS * unit, equal_nan=True))


def answered(status: Status, message: str) -> Answer:
    """An answer that is a status and says why."""
    return {"status": status.name, "message": message}


def found(findings: Sequence[Finding]) -> Answer:
    """The answer where executing found something."""
    first, *more = findings
    return answered(first.kind.status, str(first) + (f" (and {len(more)} more)" if more else ""))


def _result_of(outputs: Arrays) -> mosaic.RunResult:
    """Outputs that no execution here made."""
    return mosaic.RunResult(outputs=tuple(outputs), findings=(), seconds=0.0)


def reference_flops(problem: Problem) -> float:
    """FLOPs of the reference as written, masked work and transcendental functions included; 0 if XLA has no count.

    XLA counts the body of a loop once, so the largest count is the one that is not too small.
    """
    program = exporting.read(problem.reference_program)
    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in program.in_avals]
    analysis = jax.jit(program.call).lower(*avals).cost_analysis()
    counted = sum(float((analysis or {}).get(what, 0.0)) for what in ("flops", "transcendentals"))
    module = stablehlo_of(program)
    with module.context:
        written = flops(module)
    return counted and max(counted, written, float(sum(products(problem).values())))


def _elsewhere(problem: Problem, position: int) -> bool:
    """Whether the output lies on other chips than an input: then a copy of it there is work, and is examined."""
    where = problem.output_splits[0] if problem.output_splits else None
    if problem.mesh.chips == 1 or where is None:
        return False
    rank = len(problem.outputs[0].shape)
    given = (*problem.mesh.inputs[position], *((),) * rank)[:rank]
    return tuple(where) != tuple(given)
