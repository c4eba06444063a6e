"""The frozen programs of a problem: compiled once each.

Nothing of a candidate is here.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ratchet.exam.problem import rows
from ratchet.exam.problem.problem import Problem
from ratchet.tpu import exporting
from ratchet.tpu.mlir.bindings import device_for, waits_in_pool
from ratchet.values import ArraySpec

Arrays = list[np.ndarray[Any, Any]]

COMPILERS = 3
"""Programs that are compiled at a time: two references, and what draws their inputs."""


class Programs:
    """Calls the programs of problems."""

    def __init__(self) -> None:
        self._compiled: dict[object, Future[Any]] = {}
        self._compilers = ThreadPoolExecutor(COMPILERS)

    def drawn(self, problem: Problem, key: np.ndarray[Any, Any], *, only: Sequence[int] | None = None) -> Arrays:
        """The inputs of this key: all, or ``only`` those, of which the others are not made."""
        return [] if only is not None and not only else self._call(problem.inputs_program, [key], only=only)

    def native(self, problem: Problem, arrays: Arrays) -> Arrays:
        """Outputs of the reference in its own dtypes, in blocks where the problem has them."""
        return self._call(_native(problem), arrays)

    def exact(self, problem: Problem, arrays: Arrays, numbers: np.ndarray[Any, Any] | None = None) -> Arrays:
        """Outputs in float64, then what honest arithmetic may lose in each: all, or the rows of these numbers."""
        found = self._call(problem.reference64_program, [*_which(problem, numbers), *arrays], wide=True)
        if numbers is None:
            return found
        axes = rows.axes(problem) * 2
        return [array[(*[slice(None)] * axis, slice(0, numbers.size))] for axis, array in zip(axes, found, strict=True)]

    def begin(self, problem: Problem) -> None:
        """Compile the reference, in float64 and in its own dtypes, before it is called."""
        avals = [jax.ShapeDtypeStruct(spec.shape, jnp.dtype(spec.dtype)) for spec in problem.inputs]
        which = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in _which(problem, None)]
        self._compile(problem.reference64_program, [*which, *avals], wide=True)
        self._compile(_native(problem), avals)

    def _call(
        self, program: bytes, arguments: Arrays, *, wide: bool = False, only: Sequence[int] | None = None
    ) -> Arrays:
        """What a program makes of these; ``wide``: with 64 bits; ``only``: these of its results alone."""
        avals = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arguments]
        compiled, turn = self._compile(program, avals, wide=wide, only=only).result()
        with jax.enable_x64(wide), turn:
            return [np.asarray(leaf) for leaf in compiled(*arguments)]

    def _compile(
        self, program: bytes, avals: Sequence[Any], *, wide: bool = False, only: Sequence[int] | None = None
    ) -> Future[Any]:
        """A program, which is compiled once; again where that failed."""
        key = (hashlib.sha256(program).digest(), wide, only and tuple(only))
        known = self._compiled.get(key)
        if known is None or (known.done() and known.exception()):
            known = self._compiled[key] = self._compilers.submit(_compiled, program, avals, wide=wide, only=only)
        return known


def as_bytes(arrays: Arrays) -> Arrays:
    """As files hold them, which know no extended dtypes."""
    return [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]


def from_bytes(arrays: Arrays, specs: Sequence[ArraySpec]) -> Arrays:
    """The same, back in their dtypes and shapes."""
    pairs = zip(arrays, specs, strict=True)
    return [array.view(jnp.dtype(spec.dtype)).reshape(spec.shape) for array, spec in pairs]


def _compiled(
    program: bytes, avals: Sequence[jax.ShapeDtypeStruct], *, wide: bool, only: Sequence[int] | None
) -> tuple[Any, AbstractContextManager[Any]]:
    """A program, and what is held while it runs."""
    with jax.enable_x64(wide):
        exported = exporting.read(program)

        def some(*arrays: Any) -> list[Any]:
            made = jax.tree.leaves(exported.call(*arrays))
            return made if only is None else [made[number] for number in only]

        compiled = jax.jit(some).lower(*avals).compile()
        if not waits_in_pool(exported):
            return compiled, contextlib.nullcontext()
        place = jax.sharding.SingleDeviceSharding(device_for(compiled))
        placed = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=place) for aval in avals]
        return jax.jit(some).lower(*placed).compile(), threading.Lock()


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
