"""The child process that computes values: the reference's (``reference.py``), and the candidate program's.

No candidate Python is here: the reference is a frozen program and the candidate's kernel is executed by
``ratchet.tpu.mosaic`` from the very program that is compiled for the TPU.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ratchet.exam.judge import requests
from ratchet.exam.judge.comparison import Answer, Comparer, answered, found, reference_flops
from ratchet.exam.problem import instances
from ratchet.exam.problem.inputs import Inputs, Instance
from ratchet.exam.problem.problem import Problem, decode
from ratchet.exam.problem.programs import Arrays, Programs
from ratchet.process.concurrency import BackgroundJobs
from ratchet.process.sandbox import system
from ratchet.process.sandbox.child import serve
from ratchet.tpu.compiler.tokens import tokenise
from ratchet.tpu.mlir.bindings import lapack_where_called
from ratchet.tpu.mosaic import computed_operands
from ratchet.tpu.mosaic import run as mosaic
from ratchet.tpu.mosaic.rules import BITS_WANTED
from ratchet.values import control, encoding
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import TokenTable

_MEANWHILE_BYTES = 1 << 29
"""Inputs and outputs of a program that is executed on two instances at a time, at most: each has its own memory."""


class Values:
    """Answers requests, and keeps what several share: what checks compare with, and the loaded candidate.

    A method answers one kind of request. It gets the problem's random instance, with the secret and the cache of all.
    """

    def __init__(self) -> None:
        self.programs = Programs()
        self.inputs = Inputs(self.programs)
        self.comparer = Comparer(self.inputs)
        self._candidate: tuple[str, mosaic.Loaded, TokenTable] | None = None
        self._executions: BackgroundJobs[mosaic.RunResult] = BackgroundJobs()
        self._arrays: BackgroundJobs[Arrays] = BackgroundJobs()

    def make_reference(self, random: Instance, asked: requests.MakeReference) -> Answer:
        self.comparer.references.of(replace(random, kind=asked.kind, whole=asked.whole))
        return answered(Status.PASS, "")

    def check_problem(self, random: Instance, _: requests.CheckProblem) -> Answer:
        return self.comparer.problem(random)

    def compare_problem(self, random: Instance, asked: requests.CompareProblem) -> Answer:
        return self.comparer.same_problem(random, decode(asked.lock.read_bytes(), "the other problem"))

    def count_flops(self, random: Instance, _: requests.CountFlops) -> Answer:
        return answered(Status.PASS, "") | {"flops": reference_flops(random.problem)}

    def check_program(self, random: Instance, asked: requests.CheckProgram) -> Answer:
        instance = replace(random, kind=asked.kind, whole=asked.whole)
        then = [instance.of_kind(kind) for kind in asked.then]
        return self.check(instance, program=asked.program.read_bytes(), order=asked.order, then=then)

    def check(self, instance: Instance, *, program: bytes, order: int = 0, then: Sequence[Instance] = ()) -> Answer:
        """Execute the candidate's program on one instance, and compare its outputs; meanwhile on those ``then``."""
        kind, references = instance.kind, self.comparer.references
        if not references.has_made:  # they take blocks of all sizes: all of that and a program's is too much
            system.keep_memory()
        # Once, with what must not matter changed; a finding names the cause of values that are wrong for it.
        hazards = kind == "random" and not order
        _, loaded, tokens = self._load(program)
        if loaded.program.draws:  # ours are known, so that a kernel could tell them from the TPU's
            raise Refusal(Status.CANNOT_VERIFY, f"the core draws bits that no reference knows; wanted {BITS_WANTED}")
        if hazards:
            loaded.begin_check()
        with _explained(tokens):
            self._begin(then, loaded)
            reference, arrays = references.of(instance), self._arrays_of(instance)
            result = None if hazards or order else self._executions.take(_key(instance))
            if result is None:
                seed = order or _order(kind, loaded)
                # Probes run in that order where memory holds NaN.
                result = loaded.check(arrays, at_once=True) if hazards else loaded.run(arrays, seed=seed)
                if hazards:
                    self._begin_arrays(then)
        about = {
            "module_version": loaded.program.module_version,
            "operations": loaded.program.covered,
            "control": control.encode(result.control),
            "modules": loaded.program.modules_sha256,
            "is_steered": loaded.program.has_scalar_inputs,
            "code_sha256": loaded.program.sha256,
        }
        answer = self.comparer.result(instance, reference, result, order=order)
        if answer["status"] != Status.PASS.name and not order and _order(kind, loaded):
            with _explained(tokens):
                cause = loaded.check(self.inputs.of(instance))
            answer |= found(cause.findings) if cause.findings else {}
        return answer | about | {"message": tokens.explain(answer["message"])}

    def _begin(self, wanted: Sequence[Instance], loaded: mosaic.Loaded) -> None:
        """Execute the program on these instances in another thread, except where that was begun before.

        On several chips executions take turns, so nothing is gained there: see ``_begin_arrays``.
        """
        problem = wanted[0].problem if wanted else None
        if problem and problem.mesh.chips == 1 and problem.compulsory_bytes <= _MEANWHILE_BYTES:
            assert loaded.with_options(**loaded.first).compiled  # once, not by two threads

            def execute(instance: Instance) -> mosaic.RunResult:
                return loaded.run(self.inputs.of(instance), seed=_order(instance.kind, loaded))

            self._executions.begin({_key(one): functools.partial(execute, one) for one in wanted})

    def _begin_arrays(self, wanted: Sequence[Instance]) -> None:
        """On several chips make the inputs of the next instance that are all new, while the program runs on probes.

        Of one only: pages that the system hands out for the first time are what takes the time.
        """
        new = [one for one in wanted if not instances.is_probe(one.kind)][:1]
        if new and new[0].problem.mesh.chips > 1 and new[0].problem.compulsory_bytes <= _MEANWHILE_BYTES:
            self._arrays.begin({_key(new[0]): functools.partial(self.inputs.of, new[0])})

    def _arrays_of(self, instance: Instance) -> Arrays:
        if (begun := self._arrays.take(_key(instance))) is None:
            return self.inputs.of(instance)
        self._arrays.forget()
        return begun

    def check_outputs(self, random: Instance, asked: requests.CheckOutputs) -> Answer:
        instance = replace(random, kind=asked.kind, whole=asked.whole)
        outputs = [
            np.fromfile(asked.folder / f"output{number}.bin", np.uint8).view(jnp.dtype(spec.dtype)).reshape(spec.shape)
            for number, spec in enumerate(instance.problem.outputs)
        ]
        return self.comparer.outputs(instance, outputs)

    def write_inputs(self, random: Instance, asked: requests.WriteInputs) -> Answer:
        asked.folder.mkdir(parents=True)
        for number, array in enumerate(self.inputs.of(random.of_kind(asked.kind))):
            np.ascontiguousarray(array).view(np.uint8).tofile(asked.folder / f"input{number}.bin")
        return answered(Status.PASS, "")

    def write_operands(self, random: Instance, asked: requests.WriteOperands) -> Answer:
        problem = random.problem
        _, loaded, tokens = self._load(asked.computed.program.read_bytes())
        drawn = [self.inputs.public(problem), self.inputs.of(random)]
        with _explained(tokens):
            public, secret = computed_operands.operands(loaded, drawn, asked.computed.operands)
        named = {f"{place}:{number}:{site}": a for place, s in enumerate(public) for (site, number), a in s.items()}
        np.savez(asked.path, **named)  # type: ignore[arg-type]
        same = all(a.tobytes() == secret[n][key].tobytes() for n, s in enumerate(public) for key, a in s.items())
        return answered(Status.PASS, "") | {"same": same}

    def write_draws(self, random: Instance, asked: requests.WriteDraws) -> Answer:
        problem = random.problem
        keys = [np.frombuffer(bytes.fromhex(key), np.uint32) for key in asked.keys]
        steering = instances.steering(problem.inputs)
        named: dict[str, Any] = {}
        for number, key in enumerate(keys):
            arrays = self.programs.drawn(problem, key, only=steering)
            named |= {f"{number}:input{position}": array for position, array in zip(steering, arrays, strict=True)}
        if asked.computed is not None:
            _, loaded, tokens = self._load(asked.computed.program.read_bytes())
            drawn = [self.programs.drawn(problem, key) for key in keys]
            with _explained(tokens):
                per_draw = computed_operands.operands(loaded, drawn, asked.computed.operands)
            for number, per_place in enumerate(per_draw):
                for place, one in enumerate(per_place):
                    named |= {f"{number}:{place}:{operand}:{site}": array for (site, operand), array in one.items()}
        np.savez(asked.path, **named)  # type: ignore[arg-type]
        return answered(Status.PASS, "")

    def _load(self, program: bytes) -> tuple[str, mosaic.Loaded, TokenTable]:
        """The program with the tokens that the compiler gets, translated; what the tokens stand for."""
        digest = hashlib.sha256(program).hexdigest()
        if self._candidate is None or self._candidate[0] != digest:
            self.comparer.forget()
            self._executions.forget()
            self._arrays.forget()
            exported, tokens = tokenise(program)
            with _explained(tokens):
                self._candidate = digest, mosaic.translated(exported, mosaic.Options()), tokens
        return self._candidate


ANSWERS: Mapping[type[requests.ValuesRequest], Callable[[Values, Instance, Any], Answer]] = {
    requests.MakeReference: Values.make_reference,
    requests.CheckProblem: Values.check_problem,
    requests.CompareProblem: Values.compare_problem,
    requests.CountFlops: Values.count_flops,
    requests.CheckProgram: Values.check_program,
    requests.CheckOutputs: Values.check_outputs,
    requests.WriteInputs: Values.write_inputs,
    requests.WriteOperands: Values.write_operands,
    requests.WriteDraws: Values.write_draws,
}
_VALUES = Values()


def _key(instance: Instance) -> tuple[str, bytes, str]:
    """What the inputs of an instance follow from."""
    return instance.problem.short, instance.secret, instance.kind


def _order(kind: str, loaded: mosaic.Loaded) -> int:
    """The order in which the steps of parallel grid dimensions run on an instance: another one on the probes."""
    return mosaic.SCATTERED if instances.is_probe(kind) and loaded.program.has_orders else 0


@contextlib.contextmanager
def _explained(tokens: TokenTable) -> Iterator[None]:
    """Refusals in this context name the author's places, not their tokens."""
    try:
        yield
    except Refusal as refusal:
        raise Refusal(refusal.status, tokens.explain(refusal.message)) from None


def _answer(asked: requests.RequestFile, problem: Problem) -> Answer:
    random = Instance(problem=problem, kind="random", secret=bytes.fromhex(asked.secret), cache=asked.cache)
    try:
        return ANSWERS[type(asked.request)](_VALUES, random, asked.request)
    except Refusal as refusal:
        return answered(refusal.status, refusal.message)
    except MemoryError as error:
        return answered(Status.INFRASTRUCTURE, f"not enough memory to check the values here: {error}")
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        where = f" ({error.filename})" if error.filename else ""
        message = f"the judge cannot keep what it computed: {error.strerror or error}{where}"
        return answered(Status.NO_SPACE if full else Status.INFRASTRUCTURE, f"{message}: free or repair that")


def handle(request: Path) -> str:
    """Answer ``request/request.json``, with ``request/answer.json``."""
    start = time.monotonic()
    asked = encoding.decode(requests.RequestFile, json.loads((request / "request.json").read_text()))
    answer = _answer(asked, decode(asked.lock.read_bytes(), "the problem lock"))
    (request / "answer.json").write_text(json.dumps(answer | {"seconds": time.monotonic() - start}))
    return "answer.json"


if __name__ == "__main__":
    system.reuse_memory()
    lapack_where_called()
    jnp.zeros(()).block_until_ready()  # open the CPU backend while the parent does other things
    serve(handle)
