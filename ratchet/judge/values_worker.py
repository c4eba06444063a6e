"""The child process that computes values: the reference's, cached, and the candidate program's.

No candidate Python is here: the reference is a frozen program and the candidate's kernel is executed by
``ratchet.mosaic`` from the very program that is compiled for the TPU.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import math
import os
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from ratchet.candidate.problem import Problem, array_bytes, decode
from ratchet.child import serve
from ratchet.compiler.tokens import tokenise
from ratchet.judge import instances, parity
from ratchet.judge.floor import products
from ratchet.mosaic import beside
from ratchet.mosaic import run as mosaic
from ratchet.mosaic.bindings import lapack_where_called
from ratchet.mosaic.meanwhile import Meanwhile
from ratchet.values import control
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import TokenTable

SECRETS = 2
SMALL_FLOPS, SMALL_ELEMENTS = 1e9, 1 << 20
"""Of a reference, and of its inputs and outputs, that is tried on other secrets when its problem is frozen: a second
each. A larger one has as many chances in its many elements."""
BESIDE_BYTES = 1 << 29
"""Inputs and outputs of a program that is executed on two instances at a time, at most: each has its own memory."""
KEPT_BYTES = 1 << 27
"""Inputs of all instances of a problem that are made ahead and kept, at most."""

Arrays = list[np.ndarray[Any, Any]]
Compared = list[parity.Comparison]
"""Of every output, then of every replica that differs. Empty where there are findings, or no reference yet."""


class Values:
    """Keeps what several requests share: the problem's compiled programs and the loaded candidate."""

    def __init__(self) -> None:
        self._programs: dict[tuple[bytes, bool], Any] = {}
        self._candidate: tuple[str, mosaic.Loaded, TokenTable] | None = None
        self._random_outputs: Arrays = []
        self._meanwhile: Meanwhile[tuple[mosaic.RunResult, Compared]] = Meanwhile()
        self._making = threading.RLock()
        self._kept: tuple[object, dict[str, Arrays]] = (None, {})
        self._made: tuple[object, Arrays] = (None, [])
        self._known: tuple[object, Arrays] = (None, [])

    def _call(self, program: bytes, arguments: Arrays, *, wide: bool = False) -> Arrays:
        with jax.enable_x64(wide):
            key = (hashlib.sha256(program).digest(), wide)
            if key not in self._programs:
                self._programs[key] = jax.jit(export.deserialize(bytearray(program)).call)
            return [np.asarray(leaf) for leaf in jax.tree.leaves(self._programs[key](*arguments))]

    def inputs(self, problem: Problem, kind: str, secret: bytes) -> Arrays:
        """The arrays of one instance: a function of the problem, the kind and the judge's secret."""
        with self._making:
            owner = (problem.inputs_sha256, problem.mesh, problem.mixed_axes, secret)
            if self._kept[0] != owner:
                self._kept = (owner, {})
            kept = self._kept[1]
            if kind not in kept:
                made = self._inputs(problem, kind, secret)
                if not _are_few(problem):
                    return made
                kept[kind] = made
            return kept[kind]

    def _inputs(self, problem: Problem, kind: str, secret: bytes) -> Arrays:
        if kind == "public":
            return self._public(problem)
        name, _, place = kind.partition("-")
        base = "random" if name == "probe" else kind
        seed = hashlib.sha256(secret + base.encode()).digest()[:8]
        if self._made[0] != (problem.inputs_sha256, seed):  # a cache of many keys takes seconds, and probes share it
            self._made = (None, [])
            arrays = self._call(problem.inputs_program, [np.frombuffer(seed, np.uint32)])
            if base == "random" and instances.steering(problem.inputs):
                arrays = instances.steered(arrays, self._public(problem))
            self._made = ((problem.inputs_sha256, seed), arrays)
        arrays = self._made[1]
        generator = np.random.default_rng(list(hashlib.sha256(secret + kind.encode() + b"structure").digest()))
        if name in ("random", "fresh"):
            return arrays
        if name == "probe":
            made = instances.probe(arrays, generator, problem.mesh, int(place or 0), problem.mixed_axes)
        elif name == instances.SIGNED:
            made = instances.signed(arrays, generator, problem.mixed_axes)
        else:
            made = instances.mixed(arrays, generator, problem.mixed_axes)
        kept = instances.tables(arrays, self._public(problem))
        return [old if number in kept else new for number, (old, new) in enumerate(zip(arrays, made, strict=True))]

    def begin(self, problem: Problem, secret: bytes) -> None:
        """Compute the inputs that every check begins with; those that it needs later are made while it begins."""
        first = ("public", "random")
        for kind in first:
            self.inputs(problem, kind, secret)
        if _are_few(problem):
            later = [kind for kind in instances.kinds(problem.mesh, problem.mixed_axes) if kind not in first]
            make = functools.partial(_for_each, later, lambda kind: self.inputs(problem, kind, secret))
            threading.Thread(target=make, name="inputs", daemon=True).start()

    def _public(self, problem: Problem) -> Arrays:
        """The arrays of a key that everyone knows, for what steers a modelled run."""
        if self._known[0] != problem.inputs_sha256:
            self._known = (problem.inputs_sha256, self._call(problem.inputs_program, [np.zeros(2, np.uint32)]))
        return self._known[1]

    def reference(self, problem: Problem, kind: str, secret: bytes, cache: Path) -> tuple[Arrays, Arrays]:
        """Exact outputs and losses of one instance, from the cache if they are there."""
        path = cache / f"{kind}.npz"
        stored = _stored(path)
        if len(stored) == 2 * len(problem.outputs):
            return stored[: len(problem.outputs)], stored[len(problem.outputs) :]
        exact, losses = self.made(problem, kind, secret)
        _store(path, [*exact, *losses])
        return exact, losses

    def made(self, problem: Problem, kind: str, secret: bytes) -> tuple[Arrays, Arrays]:
        """Exact outputs and losses of one instance: the exact ones rounded once and the native ones have to pass.

        Raises:
          Refusal: ``INFRASTRUCTURE`` if the native reference is off by more than the judge can explain, on inputs of
            the problem's own. On others nothing is asked where it is.
        """
        arrays = self.inputs(problem, kind, secret)
        both = self._call(problem.reference64_program, arrays, wide=True)
        exact, losses = both[: len(problem.outputs)], both[len(problem.outputs) :]
        native = self._call(problem.reference_program, arrays)
        alike = kind == instances.SIGNED
        fitted = []
        for index, three in enumerate(zip(native, exact, losses, strict=True)):
            loss, times = parity.fitted(*three, alike=alike)
            if times > parity.WIDEST and instances.is_own(kind):
                raise Refusal(
                    Status.INFRASTRUCTURE,
                    f"{kind} inputs: output {index} of the reference in its own dtypes is {times:.3g} times as far off "
                    "its float64 value as the judge can explain, which is no fault of the kernel's; wanted a "
                    "reference that is stable in its dtypes (subtract a maximum, sum in float32)",
                )
            fitted.append(loss if times <= parity.WIDEST else parity.stable(*three, alike=alike))
        return exact, fitted

    def check(
        self,
        problem: Problem,
        kind: str,
        secret: bytes,
        cache: Path,
        *,
        program: bytes,
        order: int = 0,
        then: Iterable[str] = (),
    ) -> dict[str, Any]:
        """Run the candidate's program on one instance and compare. Returns the answer as plain JSON.

        The instances ``then`` will be asked for next: the program is executed on them beside this.
        """
        _, loaded, tokens = self._load(program)
        self._begin_beside(problem, then, secret, loaded, cache)
        exact, losses = self.reference(problem, kind, secret, cache)
        # Once, with what must not matter changed; a finding names the cause of values that are wrong for it.
        hazards = kind == "random" and not order
        try:
            done = None if hazards or order else self._meanwhile.take((problem.short, kind, secret))
            if done is None:
                arrays = self.inputs(problem, kind, secret)
                done = (loaded.check(arrays) if hazards else loaded.run(arrays, seed=order)), []
            result, compared = done
        except Refusal as refusal:
            raise Refusal(refusal.status, tokens.explain(refusal.message)) from None
        about = {
            "module_version": loaded.module_version,
            "operations": loaded.covered,
            "control": control.encode(result.control),
            "modules": loaded.modules_sha256,
            "is_steered": loaded.is_steered,
            "code_sha256": loaded.sha256,
        }
        given: dict[str, Any] = {"cache": cache, "result": result, "compared": compared, "order": order}
        answer = self._compare(problem, kind, secret, exact, losses, **given)
        return answer | about | {"message": tokens.explain(answer["message"])}

    def _begin_beside(
        self, problem: Problem, kinds: Iterable[str], secret: bytes, loaded: mosaic.Loaded, cache: Path
    ) -> None:
        """Execute the program on these instances in another thread, and compare what comes of it.

        On several chips each has its threads already.
        """
        arrays = (*problem.inputs, *problem.outputs)
        size = sum(math.prod(spec.shape) * jnp.dtype(spec.dtype).itemsize for spec in arrays)
        if problem.mesh.chips > 1 or size > BESIDE_BYTES:
            return
        loaded.compile()

        def run(kind: str) -> tuple[mosaic.RunResult, Compared]:
            result = loaded.run(self.inputs(problem, kind, secret))
            if not (cache / f"{kind}.npz").exists():  # who asks for it makes it
                return result, []
            return result, _compared(result, kind, *self.reference(problem, kind, secret, cache))

        self._meanwhile.begin({(problem.short, kind, secret): functools.partial(run, kind) for kind in kinds})

    def _compare(  # noqa: PLR0913 - what one instance and one execution of it are
        self,
        problem: Problem,
        kind: str,
        secret: bytes,
        exact: Arrays,
        losses: Arrays,
        *,
        cache: Path,
        result: mosaic.RunResult,
        compared: Compared,
        order: int = 0,
    ) -> dict[str, Any]:
        if result.findings:
            first, *more = result.findings
            return _answered(first.kind.status, str(first) + (f" (and {len(more)} more)" if more else ""))
        outputs = [np.asarray(a) for a in result.outputs]
        if order and self._random_outputs and kind == "random":
            return self._repeat(outputs)
        if kind == "random":
            self._random_outputs = outputs
        if kind.startswith("probe") and self._random_outputs:
            before, _ = self.reference(problem, "random", secret, cache)
            for index in range(len(outputs)):
                still = parity.insensitive(
                    self._random_outputs[index], outputs[index], before[index], exact[index], losses[index]
                )
                if still:
                    rows = exact[index].size // max(1, *exact[index].shape[-1:])
                    return _answered(
                        Status.INSENSITIVE,
                        f"{still} of {rows} rows of output {index} stand still although "
                        "inputs that they depend on changed: is part of the work skipped?",
                    )
        compared = compared or _compared(result, kind, exact, losses)
        worst = max(compared, key=lambda c: c.worst)
        copy, index = divmod(compared.index(worst), len(outputs))
        which = f"output {index}" + (", as not all chips hold it" if copy else "")
        answer = _answered(worst.status, f"{which}: {worst.message}")
        unasked = sum(int(np.isinf(loss).sum()) for loss in losses) / max(1, sum(loss.size for loss in losses))
        return answer | {"worst": worst.worst, "rms": worst.rms, "floor_rms": worst.floor_rms, "unasked": unasked}

    def outputs(self, problem: Problem, kind: str, secret: bytes, cache: Path, *, folder: Path) -> dict[str, Any]:
        """Compare outputs that a device computed, one file of bytes each in ``folder``."""
        exact, losses = self.reference(problem, kind, secret, cache)
        outputs = [
            np.fromfile(folder / f"output{number}.bin", np.uint8).view(jnp.dtype(spec.dtype)).reshape(spec.shape)
            for number, spec in enumerate(problem.outputs)
        ]
        result = mosaic.RunResult(outputs=tuple(outputs), findings=(), seconds=0.0)
        return self._compare(problem, kind, secret, exact, losses, cache=cache, result=result, compared=[])

    def write_inputs(self, problem: Problem, kind: str, secret: bytes, folder: Path) -> dict[str, Any]:
        """Write the arrays of one instance to ``folder``, one file of bytes each."""
        folder.mkdir(parents=True)
        for number, array in enumerate(self.inputs(problem, kind, secret)):
            np.ascontiguousarray(array).view(np.uint8).tofile(folder / f"input{number}.bin")
        return _answered(Status.PASS, "")

    def _check_again(self, problem: Problem, secret: bytes) -> None:
        """The native reference passes on other secrets, too, for a problem small enough to ask: see ``made``."""
        elements = sum(math.prod(spec.shape) for spec in (*problem.inputs, *problem.outputs))
        if elements > SMALL_ELEMENTS or _reference_flops(problem) > SMALL_FLOPS:
            return
        for number in range(SECRETS):
            other = hashlib.sha256(secret + b"another" + bytes([number])).digest()
            for kind in instances.kinds(problem.mesh, problem.mixed_axes):
                self.made(problem, kind, other)

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

    def beside(
        self, problem: Problem, secret: bytes, *, program: bytes, wanted: dict[str, list[int]], path: Path
    ) -> dict[str, Any]:
        """Write the operands of kernels that the program computes from public inputs, per mesh index, to ``path``.

        The answer says whether the random instance, with its secret floats, gives the same.
        """
        _, loaded, tokens = self._load(program)
        instances_of = [self._public(problem), self.inputs(problem, "random", secret)]
        try:
            public, random = beside.operands(loaded, instances_of, wanted)
        except Refusal as refusal:
            raise Refusal(refusal.status, tokens.explain(refusal.message)) from None
        named = {f"{place}:{number}:{site}": a for place, s in enumerate(public) for (site, number), a in s.items()}
        np.savez(path, **named)  # type: ignore[arg-type]
        same = all(a.tobytes() == random[n][key].tobytes() for n, s in enumerate(public) for key, a in s.items())
        return _answered(Status.PASS, "") | {"same": same}

    def draws(
        self, problem: Problem, *, seeds: list[str], program: str, wanted: dict[str, list[int]], path: Path
    ) -> dict[str, Any]:
        """Write what steers, and the operands that the program computes, of inputs with these keys to ``path``."""
        keys = [np.frombuffer(bytes.fromhex(seed), np.uint32) for seed in seeds]
        drawn = [self._call(problem.inputs_program, [key]) if key.any() else self._public(problem) for key in keys]
        named = {
            f"{number}:input{position}": arrays[position]
            for number, arrays in enumerate(drawn)
            for position in instances.steering(problem.inputs)
        }
        if wanted:
            _, loaded, tokens = self._load(Path(program).read_bytes())
            try:
                computed = beside.operands(loaded, drawn, wanted)
            except Refusal as refusal:
                raise Refusal(refusal.status, tokens.explain(refusal.message)) from None
            for number, per_place in enumerate(computed):
                for place, one in enumerate(per_place):
                    named |= {f"{number}:{place}:{operand}:{site}": array for (site, operand), array in one.items()}
        np.savez(path, **named)  # type: ignore[arg-type]
        return _answered(Status.PASS, "")

    def _load(self, program: bytes) -> tuple[str, mosaic.Loaded, TokenTable]:
        digest = hashlib.sha256(program).hexdigest()
        if self._candidate is None or self._candidate[0] != digest:
            self._meanwhile.forget()
            self._candidate, self._random_outputs = (digest, *_loaded(program)), []
        return self._candidate

    def weak(self, problem: Problem, secret: bytes, cache: Path) -> dict[str, Any]:
        """Whether an answer that computes nothing would pass."""
        exact, losses = self.reference(problem, "random", secret, cache)
        arrays, dtypes = self.inputs(problem, "random", secret), [jnp.dtype(spec.dtype) for spec in problem.outputs]

        def passes(values: Iterable[Any]) -> bool:
            filled = (np.full(e.shape, v).astype(d) for e, v, d in zip(exact, values, dtypes, strict=True))
            return all(parity.compare(*three).worst <= 1 for three in zip(filled, exact, losses, strict=True))

        guesses = {"zeros": [0.0] * len(exact), "ones": [1.0] * len(exact)}
        if passes(map(np.mean, exact)):  # a single number is its own mean, but not that of other inputs
            public = self._call(problem.reference64_program, self._public(problem), wide=True)[: len(exact)]
            guesses["the reference's mean"] = [float(np.mean(array)) for array in public]
        for name, values in guesses.items():
            if passes(values):
                return _answered(
                    Status.WEAK_PROBLEM, f"{name} would pass this problem; wanted inputs that tell it apart"
                )
        for position, array in enumerate(arrays):
            if len(exact) != 1 or array.shape != exact[0].shape or _elsewhere(problem, position):
                continue
            if parity.compare(array.astype(dtypes[0]), exact[0], losses[0]).worst <= 1:
                return _answered(Status.WEAK_PROBLEM, f"a copy of input {position} would pass this problem")
        self._check_again(problem, secret)
        return _answered(Status.PASS, "zeros, constants and copies of inputs fail it, as they should")


def _compared(result: mosaic.RunResult, kind: str, exact: Arrays, losses: Arrays) -> Compared:
    """How outputs compare; of chips that ought to hold the same each has to be right."""
    if result.findings:
        return []
    return [
        parity.compare(np.asarray(got), *pair, alike=kind == instances.SIGNED)
        for own in (result.outputs, *result.replicas)
        for got, *pair in zip(own, exact, losses, strict=True)
    ]


def _are_few(problem: Problem) -> bool:
    """Whether the inputs of all instances may be kept."""
    count = len(instances.kinds(problem.mesh, problem.mixed_axes)) + 1
    return count * sum(map(array_bytes, problem.inputs)) <= KEPT_BYTES


def _for_each(kinds: Iterable[str], make: Callable[[str], object]) -> None:
    """What fails fails again, and is said, where it is needed."""
    with contextlib.suppress(Exception):
        for kind in kinds:
            make(kind)


def _elsewhere(problem: Problem, position: int) -> bool:
    """Whether the output lies on other chips than an input: then a copy of it there is work, and is examined."""
    where = problem.output_splits[0] if problem.output_splits else None
    if problem.mesh.chips == 1 or where is None:
        return False
    rank = len(problem.outputs[0].shape)
    given = (*problem.mesh.inputs[position], *((),) * rank)[:rank]
    return tuple(where) != tuple(given)


def _loaded(program: bytes) -> tuple[mosaic.Loaded, TokenTable]:
    """The program with the tokens that the compiler gets, translated; what the tokens stand for."""
    exported, tokens = tokenise(program)
    try:
        return mosaic.translated(exported, mosaic.Options()), tokens
    except Refusal as refusal:
        raise Refusal(refusal.status, tokens.explain(refusal.message)) from None


def _reference_flops(problem: Problem) -> float:
    """FLOPs of the reference as written, masked work and transcendental functions included; 0 if XLA has no count."""
    program = export.deserialize(bytearray(problem.reference_program))
    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in program.in_avals]
    analysis = jax.jit(program.call).lower(*avals).cost_analysis()
    counted = sum(float((analysis or {}).get(what, 0.0)) for what in ("flops", "transcendentals"))
    return counted and max(counted, float(sum(products(problem).values())))  # XLA counts the body of a loop once


def _stored(path: Path) -> Arrays:
    """The arrays of a cache file; none if it is not there, or was cut off or damaged."""
    try:
        with np.load(path) as stored:
            return [stored[name] for name in stored.files]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        return []


def _store(path: Path, arrays: Arrays) -> None:
    """Written beside and renamed: a process that is killed, or a full disk, leaves no half of a file under its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.stem}.{os.getpid()}-{threading.get_ident()}.npz")
    try:
        np.savez(beside, *arrays)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _answered(status: Status, message: str) -> dict[str, Any]:
    return {"status": status.name, "message": message}


_VALUES = Values()


def _answer(asked: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    """What is asked for by ``mode``."""
    mode, secret, cache = asked["mode"], bytes.fromhex(asked["secret"]), Path(asked["cache"])
    if mode in ("reference", "begin"):
        if mode == "begin":
            _VALUES.begin(problem, secret)
        else:
            _VALUES.reference(problem, asked["kind"], secret, cache)
        return _answered(Status.PASS, "")
    if mode == "outputs":
        return _VALUES.outputs(problem, asked["kind"], secret, cache, folder=Path(asked["folder"]))
    if mode == "inputs":
        return _VALUES.write_inputs(problem, asked["kind"], secret, Path(asked["folder"]))
    if mode == "draws":
        given = {name: asked[name] for name in ("seeds", "program", "wanted")}
        return _VALUES.draws(problem, **given, path=Path(asked["path"]))
    if mode == "flops":
        return _answered(Status.PASS, "") | {"flops": _reference_flops(problem)}
    if mode == "weak":
        return _VALUES.weak(problem, secret, cache)
    program = Path(asked["program"]).read_bytes()
    if mode == "beside":
        path = Path(asked["path"])
        return _VALUES.beside(problem, secret, program=program, wanted=asked["wanted"], path=path)
    given = {name: asked[name] for name in ("order", "then") if name in asked}
    return _VALUES.check(problem, asked["kind"], secret, cache, program=program, **given)


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
    lapack_where_called()
    jnp.zeros(()).block_until_ready()  # open the CPU backend while the parent does other things
    serve(handle)
