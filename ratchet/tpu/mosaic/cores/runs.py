"""Runs of operations, compiled by the executor that other kernels are traced with, once for all cores."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ratchet.tpu.mlir.module import Block, Op, Value
from ratchet.tpu.mlir.signature import Kernel
from ratchet.tpu.mosaic.arrays import Array, jax_dtype
from ratchet.tpu.mosaic.cores.plan import Run, is_constant
from ratchet.tpu.mosaic.cores.scalars import Quick
from ratchet.tpu.mosaic.devices import COMPILER_OPTIONS
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.findings import KINDS, Finding
from ratchet.tpu.mosaic.memory import Buffer, Ref
from ratchet.tpu.mosaic.report import COUNTS, DIGESTS, FLAGS, counters_of
from ratchet.tpu.mosaic.state import Options


def indices_of(ref: Ref) -> list[Any]:
    """The indices of the slices that a reference is made of, in order."""
    found: list[Any] = []

    def note(index: Any) -> Any:
        found.append(index)
        return index

    ref.map_indices(note)
    return found


@dataclass(frozen=True, kw_only=True)
class _Compiled:
    call: Callable[..., Any]
    reads: tuple[Buffer, ...]
    writes: list[Buffer]
    """Known when it was called."""


@dataclass(kw_only=True)
class Runs:
    """The compiled runs of one kernel."""

    kernel: Kernel
    options: Options
    sites: list[Finding]
    _made: dict[Run, _Compiled] = field(default_factory=dict)
    _buffers: dict[Value, Buffer] = field(default_factory=dict)
    quick: dict[Op, Quick | None] = field(default_factory=dict)
    """Scalar operations that were executed before."""

    @functools.cached_property
    def constants(self) -> dict[Value, Any]:
        """The scalar constants of the kernel."""
        nothing = np.int32(0)
        executor = Executor(kernel=self.kernel.module, options=self.options, fill=nothing, padding=nothing)
        for op in self.kernel.module.operations():
            if is_constant(op):
                executor.execute(op)
        return executor.values

    def buffer(
        self, value: Value, name: str, *, shape: tuple[int, ...] | None = None, is_input: bool = False
    ) -> Buffer:
        """Of what is given or allocated: the same in all executions, for all cores; each has its own memory for it."""
        if value not in self._buffers:
            type_ = value.type
            own, dtype = type_.shape if shape is None else shape, jax_dtype(type_.dtype)
            self._buffers[value] = Buffer(name=name, shape=own, dtype=dtype, space=type_.space, is_input=is_input)
        return self._buffers[value]

    def execute(  # noqa: PLR0913 - where on which core, by keyword
        self, run: Run, values: dict[Value, Any], of: Callable[[Buffer], np.ndarray], *,
        seed: int, fill: int, padding: int, step: int, bounds: tuple[int, ...], digests: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
        """Execute a run on one core.

        Args:
            values: of everything before it; receives what it leaves.
            of: the core's memory of a buffer, changed in place.
            digests: int32, of what was read until now.

        Returns:
            First findings and counts of executions as ``report`` has them, and the digests after it.
        """
        indices = [index for value in run.refs for index in indices_of(values[value])]
        given = [values[value] for value in run.given]
        if run not in self._made:
            self._made[run] = self._compiled(run, values, len(bounds))
        made = self._made[run]
        words = np.array([seed, fill, padding, step, *bounds, *map(int, indices)], np.int32)
        left, written, flags, counts, after = made.call(
            words, [np.asarray(one) if isinstance(one, np.generic) else one for one in given],
            [of(buffer) for buffer in made.reads], digests,
        )  # fmt: skip
        for value, array in zip(run.left, left, strict=True):
            values[value] = np.asarray(array)[()] if value.type.kind == "scalar" else array
        for buffer, array in zip(made.writes, written, strict=True):
            np.copyto(of(buffer), np.asarray(array))
        return np.asarray(flags), np.asarray(counts), np.asarray(after)

    def _compiled(self, run: Run, values: dict[Value, Any], dimensions: int) -> _Compiled:
        refs: dict[Value, Ref] = {value: values[value] for value in run.refs}
        reads = tuple(dict.fromkeys(ref.buffer for ref in refs.values()))
        writes: list[Buffer] = []

        def traced(words: Array, given: list[Array], contents: list[Array], digests: Array) -> Any:
            seed, fill, padding, step, *rest = words
            executor = Executor(
                kernel=self.kernel.module, outputs=self.kernel.outputs, options=self.options,
                fill=fill, padding=padding, sites=self.sites, step=step, backwards=seed != 0,
            )  # fmt: skip
            executor.bounds = tuple(rest[:dimensions])
            following = iter(rest[dimensions:])
            executor.values.update((value, ref.map_indices(lambda _: next(following))) for value, ref in refs.items())
            executor.values.update(zip(run.given, given, strict=True))
            executor.memory.update(zip(reads, contents, strict=True))
            executor.memory[FLAGS] = jnp.full((2 * len(KINDS),), -1, jnp.int32)
            executor.memory[COUNTS] = jnp.zeros(counters_of(self.kernel.module), jnp.int32)
            executor.memory[DIGESTS] = digests
            executor.run_block(Block(arguments=(), operations=(*run.constants, *run.operations)))
            executor.flush()
            writes[:] = [one for one, was in zip(reads, contents, strict=True) if executor.memory[one] is not was]
            left = [jnp.asarray(executor.values[value]) for value in run.left]
            report = (executor.memory[one] for one in (FLAGS, COUNTS, DIGESTS))
            return left, [executor.memory[one] for one in writes], *report

        return _Compiled(call=jax.jit(traced, compiler_options=COMPILER_OPTIONS), reads=reads, writes=writes)
