"""Kernels on several cores inside a program: the program runs on XLA's CPU, those kernels beside it.

The program takes their results as words behind its configuration, and gives their operands as words behind its report.
It is executed until the results that it was given are those of the operands that it gives: once for each such kernel
that depends on another, and once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.calls import Call
from ratchet.tpu.mlir.signature import Kernel
from ratchet.tpu.mosaic.arrays import Array, kept_as
from ratchet.tpu.mosaic.cores.chip import Chip, Outcome
from ratchet.tpu.mosaic.cores.plan import meets_cores
from ratchet.tpu.mosaic.cores.runs import Runs
from ratchet.tpu.mosaic.findings import Finding
from ratchet.tpu.mosaic.lowering import CONFIG_WIDTH
from ratchet.tpu.mosaic.program import Program
from ratchet.tpu.mosaic.report import Layout
from ratchet.tpu.mosaic.state import Options

_RUNS: WeakKeyDictionary[Program, dict[tuple[int, Options], Runs]] = WeakKeyDictionary()
"""A program is translated more than once: what is compiled for several cores serves all translations."""
_EXECUTED = 0
"""Of the words behind a report: how often the call was executed; operands follow."""


@dataclass(kw_only=True)
class _OnCores:
    kernel: Kernel
    call: Call
    runs: Runs
    at: int
    """Where its results are among the words behind the configuration."""
    results: list[np.ndarray]
    operands: list[np.ndarray] = field(default_factory=list)
    outcome: Outcome | None = None

    @property
    def outputs(self) -> list[tuple[tuple[int, ...], np.dtype]]:
        return [(tuple(aval.shape), np.dtype(aval.dtype)) for aval in self.call.outputs]


class Beside:
    """The kernels of a program that are executed on cores of their own."""

    def __init__(self, program: Program, options: Options) -> None:
        self.options = options
        self.words = CONFIG_WIDTH
        """Of the configuration, with all results behind it."""
        self._kernels: dict[int, _OnCores] = {}
        for number, (kernel, call) in enumerate(zip(program.kernels, program.calls, strict=True)):
            if meets_cores(kernel):
                one = _OnCores(
                    kernel=kernel, call=call, runs=_runs_of(program, number, options), at=self.words, results=[]
                )
                one.results = [np.zeros(shape, dtype) for shape, dtype in one.outputs]
                self.words += sum(_words(shape, dtype) for shape, dtype in one.outputs)
                self._kernels[number] = one

    def translate(self, number: int, call: Call, layout: Layout) -> Callable[..., Any]:
        """A call as a JAX function ``(config, *operands) -> (results, report)``: of that all but the operands is empty.

        Raises:
            Refusal: ``CANNOT_VERIFY`` for a call that is sharded over chips.
        """
        one = self._kernels[number]
        *_, before = layout.parts
        if call.mesh:
            raise one.kernel.module.refusal("a kernel on several cores of each of several chips")

        def run(config: Array, *operands: Array) -> tuple[list[Array], Array]:
            at, results = one.at, []
            for shape, dtype in one.outputs:
                size = _words(shape, dtype)
                results.append(_array(config[at : at + size], shape, dtype))
                at += size
            words = [jnp.zeros(before, jnp.int32), jnp.ones(1, jnp.int32), *map(_as_words, operands)]
            return results, layout.completed(jnp.concatenate(words), None)

        return run

    def sites(self, number: int) -> list[Finding]:
        """What a kernel of these may report."""
        return self._kernels[number].runs.sites

    @property
    def operands(self) -> int:
        """Words of operands that a call gives at most, and one; 0 without such kernels."""
        return max((1 + _operand_words(one) for one in self._kernels.values()), default=0)

    def __contains__(self, number: int) -> bool:
        """Whether a call is of one of these, by its number."""
        return number in self._kernels

    def __bool__(self) -> bool:
        return bool(self._kernels)

    def config(self, head: Sequence[int]) -> np.ndarray:
        """The configuration of the program's next execution."""
        parts = [np.array(head, np.int32)]
        for one in self._kernels.values():
            parts += [_to_words(array) for array in one.results]
        return np.concatenate(parts)

    def execute(self, given: np.ndarray, *, seed: int, fill: int, padding: int) -> bool:
        """Execute the kernels whose operands are other ones than before; whether there were any.

        Args:
            given: of every call, the words behind its report.

        Raises:
            Refusal: ``CANNOT_VERIFY`` for a call that was executed more than once.
        """
        changed = False
        for number, one in self._kernels.items():
            words = given[number]
            if int(words[_EXECUTED]) < 1:
                continue  # in a branch that was not taken
            if int(words[_EXECUTED]) > 1:
                raise one.kernel.module.refusal(f"the kernel {one.call.name} on several cores in a loop around it")
            operands = list(_read(words[1:], one.call.inputs))
            if one.outcome is not None and all(
                a.tobytes() == b.tobytes() for a, b in zip(operands, one.operands, strict=True)
            ):
                continue
            changed, one.operands = True, operands
            kept = [array.view(kept_as(array.dtype)) for array in operands]
            chip = Chip(
                one.kernel, kept, one.outputs, one.runs, seed=seed, fill=fill, padding=padding, options=self.options
            )
            one.outcome = chip.run()
            pairs = zip(one.outcome.results, one.outputs, strict=True)
            one.results = [array.view(dtype) for array, (_, dtype) in pairs]
        return changed

    def forget(self) -> None:
        """Before the program is executed for other inputs."""
        for one in self._kernels.values():
            one.outcome = None

    def write(self, reports: np.ndarray, layout: Layout) -> None:
        """Into the reports of all calls, those of these."""
        counts, digests, blocks, *_ = layout.parts
        for number, one in self._kernels.items():
            if one.outcome is None:
                continue
            row = reports[number]
            row[:counts] = one.outcome.flags
            row[counts : counts + len(one.outcome.counts)] = one.outcome.counts
            row[digests:blocks] = one.outcome.digests


def _runs_of(program: Program, number: int, options: Options) -> Runs:
    alike = replace(options, on_wait=False, windows_ahead=False, apart=False)
    made = Runs(kernel=program.kernels[number], options=alike, sites=[])
    return _RUNS.setdefault(program, {}).setdefault((number, alike), made)


# --- arrays as words ------------------------------------------------------------------------------


def _stored(dtype: np.dtype) -> np.dtype:
    """What an element is kept as in words: whole bytes."""
    return np.dtype(np.int8) if dtype == np.dtype(bool) or dtype.name in ("int4", "uint4", "int2", "uint2") else dtype


def _words(shape: Sequence[int], dtype: np.dtype) -> int:
    return -(-math.prod(shape) * _stored(dtype).itemsize // 4)


def _operand_words(one: _OnCores) -> int:
    return sum(_words(aval.shape, np.dtype(aval.dtype)) for aval in one.call.inputs)


def _as_words(x: Array) -> Array:
    """int32 vector of an array's bytes, filled up to whole words."""
    dtype = np.dtype(x.dtype)
    flat = x.astype(_stored(dtype)).reshape(-1) if _stored(dtype) != dtype else x.reshape(-1)
    per_word = 4 // flat.dtype.itemsize
    if per_word == 1:
        return lax.bitcast_convert_type(flat, jnp.int32)
    part = np.dtype(f"uint{8 * flat.dtype.itemsize}")
    flat = jnp.pad(lax.bitcast_convert_type(flat, part), (0, -flat.size % per_word))
    return lax.bitcast_convert_type(flat.reshape(-1, per_word), jnp.int32)


def _array(words: Array, shape: Sequence[int], dtype: np.dtype) -> Array:
    """The inverse of ``_as_words``."""
    stored = _stored(dtype)
    flat = lax.bitcast_convert_type(words, stored).reshape(-1)[: math.prod(shape)].reshape(tuple(shape))
    return flat if stored == dtype else flat.astype(dtype)


def _to_words(x: np.ndarray) -> np.ndarray:
    flat = np.ascontiguousarray(x).astype(_stored(x.dtype), copy=False).tobytes()
    return np.frombuffer(flat + bytes(-len(flat) % 4), np.int32)


def _read(words: np.ndarray, avals: Sequence[jax.ShapeDtypeStruct]) -> Any:
    at = 0
    for aval in avals:
        dtype = np.dtype(aval.dtype)
        size = _words(aval.shape, dtype)
        count = math.prod(aval.shape)
        flat = np.frombuffer(words[at : at + size].tobytes(), _stored(dtype))[:count]
        yield np.array(flat.astype(dtype, copy=False).reshape(aval.shape))
        at += size
