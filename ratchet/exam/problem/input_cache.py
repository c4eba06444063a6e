"""Inputs of a problem's instances, and what its reference makes of them.

Nothing of a candidate is here: the reference is a frozen program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from ratchet.exam.problem import array_file, instances, rows
from ratchet.exam.problem.problem import Problem, array_bytes

KEPT_BYTES = 1 << 27
"""Inputs of all instances of a problem that are kept, at most."""

Arrays = list[np.ndarray[Any, Any]]

PUBLIC = np.zeros(2, np.uint32)
"""The key of the public inputs."""
COMPILERS = 3
"""Programs that are compiled at a time: two references, and what draws their inputs."""
TABLES, DRAWN = "tables", "drawn"
"""Files beside the references: which inputs are the same for every key, and the inputs of the judge's."""
DRAWN_BYTES = 1 << 29
"""Inputs of a problem that are kept in a file, at most. Those of a cache of many keys take seconds to draw."""


class Given:
    """What checks compare with. Keeps what several requests share: the problem's compiled programs, and inputs."""

    def __init__(self) -> None:
        self._programs: dict[object, Future[Any]] = {}
        self._compilers = ThreadPoolExecutor(COMPILERS)
        self._folders: dict[str, Path] = {}
        self._tables: dict[str, list[int]] = {}
        self._kept: tuple[object, dict[str, Arrays]] = (None, {})
        self._made: tuple[object, Arrays] = (None, [])
        self._known: tuple[object, Arrays] = (None, [])
        self._steering: tuple[object, dict[int, np.ndarray[Any, Any]]] = (None, {})

    def keep_in(self, problem: Problem, folder: Path) -> None:
        """Where to keep what is known of a problem's inputs besides its references."""
        self._folders[problem.inputs_sha256] = folder

    def call(
        self, program: bytes, arguments: Arrays, *, wide: bool = False, only: Sequence[int] | None = None
    ) -> Arrays:
        """What a frozen program makes of these; ``wide``: with 64 bits; ``only``: these of its results alone."""
        avals = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arguments]
        compiled = self._compiled(program, avals, wide=wide, only=only).result()
        with jax.enable_x64(wide):
            return [np.asarray(leaf) for leaf in compiled(*arguments)]

    def _compiled(
        self, program: bytes, avals: Sequence[Any], *, wide: bool = False, only: Sequence[int] | None = None
    ) -> Future[Any]:
        """A frozen program, which is compiled once; again where that failed."""
        key = (hashlib.sha256(program).digest(), wide, only and tuple(only))
        known = self._programs.get(key)
        if known is None or (known.done() and known.exception()):
            known = self._programs[key] = self._compilers.submit(_compile, program, avals, wide=wide, only=only)
        return known

    def native(self, problem: Problem, arrays: Arrays) -> Arrays:
        """Outputs of the reference in its own dtypes, in blocks where the problem has them."""
        return self.call(_native(problem), arrays)

    def inputs(self, problem: Problem, kind: str, secret: bytes) -> Arrays:
        """The arrays of one instance: a function of the problem, the kind and the judge's secret."""
        owner = _owner(problem, secret)
        if self._kept[0] != owner:
            self._kept = (owner, {})
        held = self._kept[1]
        if kind not in held:
            made = self._inputs(problem, kind, secret)
            if not _are_few(problem):
                return made
            held[kind] = made
        return held[kind]

    def _inputs(self, problem: Problem, kind: str, secret: bytes) -> Arrays:
        if kind == "public":
            return self.public(problem)
        name, _, place = kind.partition("-")
        base = kind if name == "fresh" else "random"
        seed = hashlib.sha256(secret + base.encode()).digest()[:8]
        if self._made[0] != (problem.inputs_sha256, seed):  # a cache of many keys takes seconds, and all kinds share it
            self._made = (None, [])
            key = np.frombuffer(seed, np.uint32)
            made = self._kept_draw(problem, key) if base == "random" else self.drawn(problem, key)
            self._made = ((problem.inputs_sha256, seed), made)
        drawn = arrays = self._made[1]
        if name in ("random", "probe"):
            arrays = list(arrays)
            for position, array in self.steering(problem).items():
                arrays[position] = array
        generator = np.random.default_rng(list(hashlib.sha256(secret + kind.encode() + b"structure").digest()))
        if name in ("random", "fresh"):
            return arrays
        if name == "probe":
            made = instances.probe(arrays, generator, problem.mesh, int(place or 0), problem.mixed_axes)
        elif name == instances.SIGNED:
            made = instances.signed(arrays, generator, problem.mixed_axes)
        else:
            made = instances.mixed(arrays, generator, problem.mixed_axes)
        same = self._tables_of(problem, drawn)
        return [old if number in same else new for number, (old, new) in enumerate(zip(arrays, made, strict=True))]

    def steering(self, problem: Problem) -> dict[int, np.ndarray[Any, Any]]:
        """What of the public inputs may steer, by position."""
        owner, made = self._steering
        if owner != problem.inputs_sha256:  # a draw waits for an execution that is under way
            some = instances.steering(problem.inputs)
            made = dict(zip(some, self.drawn(problem, PUBLIC, only=some), strict=True))
            self._steering = (problem.inputs_sha256, made)
        return made

    def drawn(self, problem: Problem, key: np.ndarray[Any, Any], *, only: Sequence[int] | None = None) -> Arrays:
        """The inputs of this key: all, or ``only`` those, of which the others are not made."""
        return [] if only is not None and not only else self.call(problem.inputs_program, [key], only=only)

    def _kept_draw(self, problem: Problem, key: np.ndarray[Any, Any]) -> Arrays:
        """The inputs of the judge's key, which all instances are made of: kept with the references, if they are few.

        The key is kept with them; a problem that is frozen is tried with others, too.
        """
        folder = self._folders.get(problem.inputs_sha256)
        if folder is None or sum(map(array_bytes, problem.inputs)) > DRAWN_BYTES:
            return self.drawn(problem, key)
        stored = array_file.read(array_file.path_of(folder, DRAWN))
        if stored and stored[0].tobytes() == key.tobytes():
            pairs = zip(stored[1:], problem.inputs, strict=True)
            return [array.view(jnp.dtype(spec.dtype)).reshape(spec.shape) for array, spec in pairs]
        drawn = self.drawn(problem, key)
        if not stored:
            plain = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in drawn)
            array_file.write(array_file.path_of(folder, DRAWN), [key, *plain])
        return drawn

    def _tables_of(self, problem: Problem, drawn: Arrays) -> list[int]:
        """Positions of the inputs that are the same for every key, as ``drawn`` by one: see ``instances.tables``.

        To know it takes another draw of all of them, so it is kept with the references.
        """
        owner, folder = problem.inputs_sha256, self._folders.get(problem.inputs_sha256)
        stored = array_file.read(array_file.path_of(folder, TABLES)) if folder else []
        if owner not in self._tables:
            known = len(stored) == 1
            self._tables[owner] = stored[0].tolist() if known else instances.tables(drawn, self.public(problem))
        if folder and not stored:
            array_file.write(array_file.path_of(folder, TABLES), [np.array(self._tables[owner], np.int64)])
        return self._tables[owner]

    def public(self, problem: Problem) -> Arrays:
        """The arrays of a key that everyone knows, for what steers a modelled run."""
        owner, arrays = self._known
        if owner != problem.inputs_sha256:
            arrays = self.drawn(problem, PUBLIC)
            for position, array in self.steering(problem).items():  # a float may be rounded otherwise beside others
                arrays[position] = array
            self._known = (problem.inputs_sha256, arrays)
        return arrays

    def begin_programs(self, problem: Problem) -> None:
        """Compile the reference, in float64 and in its own dtypes, beside what is done until it is called."""
        avals = [jax.ShapeDtypeStruct(spec.shape, jnp.dtype(spec.dtype)) for spec in problem.inputs]
        which = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in _which(problem, None)]
        self._compiled(problem.reference64_program, [*which, *avals], wide=True)
        self._compiled(_native(problem), avals)

    def exact(self, problem: Problem, arrays: Arrays, numbers: np.ndarray[Any, Any] | None = None) -> Arrays:
        """Outputs in float64, then what honest arithmetic may lose in each: all, or the rows of these numbers."""
        found = self.call(problem.reference64_program, [*_which(problem, numbers), *arrays], wide=True)
        if numbers is None:
            return found
        axes = rows.axes(problem) * 2
        return [array[(*[slice(None)] * axis, slice(0, numbers.size))] for axis, array in zip(axes, found, strict=True)]


def _compile(program: bytes, avals: Sequence[Any], *, wide: bool, only: Sequence[int] | None) -> Any:
    with jax.enable_x64(wide):
        called = export.deserialize(bytearray(program)).call

        def some(*arrays: Any) -> list[Any]:
            made = jax.tree.leaves(called(*arrays))
            return made if only is None else [made[number] for number in only]

        return jax.jit(some).lower(*avals).compile()


def _which(problem: Problem, numbers: np.ndarray[Any, Any] | None) -> Arrays:
    """What a program of rows takes before its inputs: how many blocks, and their rows. The last block is filled up."""
    if problem.rows is None:
        return []
    length = rows.length(problem)
    asked = np.arange(length, dtype=np.int32) if numbers is None else numbers.astype(np.int32)
    count = -(-asked.size // problem.rows.block)
    return [np.array(count, np.int32), np.pad(asked, (0, length - asked.size), mode="edge")]


def _native(problem: Problem) -> bytes:
    """The program of the reference in its own dtypes."""
    return problem.blocked_program or problem.reference_program


def _owner(problem: Problem, secret: bytes) -> object:
    """What the inputs of each kind are a function of."""
    return problem.inputs_sha256, problem.mesh, problem.mixed_axes, secret


def _are_few(problem: Problem) -> bool:
    """Whether the inputs of all instances may be kept."""
    count = len(instances.kinds(problem.mesh, problem.mixed_axes)) + 1
    return count * sum(map(array_bytes, problem.inputs)) <= KEPT_BYTES
