"""The room's door: an exported TPU program in, its values and findings out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from ratchet.mosaic import ops_arith, ops_control, ops_memory, ops_vector, splice
from ratchet.mosaic.bindings import parse_kernel, repack, stablehlo_of
from ratchet.mosaic.findings import KINDS, Finding, Kind, Site
from ratchet.mosaic.grid import Kernel, describe, run_kernel
from ratchet.mosaic.machine import Options
from ratchet.status import Refusal, Status
from ratchet.values import ArraySpec

RULE_MODULES = (ops_arith, ops_control, ops_memory, ops_vector)
"""Importing them fills the table of operations."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What one execution gave."""

    outputs: tuple[np.ndarray, ...]
    findings: tuple[Finding, ...]
    seconds: float


class Loaded:
    """A TPU program, translated and compiled for the CPU. Run it as often as needed; it compiles once."""

    def __init__(self, exported: Any, options: Options) -> None:
        _check_program(exported)
        self.inputs = tuple(_spec(aval) for aval in exported.in_avals)
        self.outputs = tuple(_spec(aval) for aval in exported.out_avals)
        self.kernels: list[Kernel] = []
        self._sites: list[list[Site]] = []
        self._options = options
        module = stablehlo_of(exported)
        self._count = splice.splice(module, self._translate)
        width = max(self._count, 1) * splice.REPORT_WIDTH
        config = jax.core.ShapedArray((2,), jnp.int32)
        report = jax.core.ShapedArray((width,), jnp.int32)
        self._exported = repack(exported, module, [*exported.in_avals, config], [*exported.out_avals, report])
        self._compiled: Any = None

    @property
    def covered(self) -> tuple[str, ...]:
        """Names of the operations met in the kernels, sorted."""
        return tuple(sorted({op.name for kernel in self.kernels for op in kernel.module.operations()}))

    @property
    def module_version(self) -> int:
        """Largest version of the kernels' ``stable_mosaic`` modules; 0 for a program without kernels."""
        return max((kernel.module.version for kernel in self.kernels), default=0)

    def _translate(self, number: int, call: splice.Call) -> Any:
        kernel = describe(call.name, parse_kernel(call.body), len(call.inputs), len(call.outputs), call.aliases)
        sites: list[Site] = []
        self.kernels.append(kernel)
        self._sites.append(sites)
        types = [(tuple(aval.shape), np.dtype(aval.dtype)) for aval in call.outputs]

        def run(config: Any, *operands: Any) -> Any:
            return run_kernel(kernel, operands, types, config=config, options=self._options, sites=sites)

        return run

    def run(self, inputs: Sequence[np.ndarray], *, seed: int = 0, fill: int = 0) -> RunResult:
        """Execute the program once.

        Args:
            inputs: One array per input, of the declared shape and dtype.
            seed: Order of the steps of parallel grid dimensions: 0 is lexicographic, others are scattered.
            fill: What unwritten memory holds: 0 is NaN (an odd number for integers), others are other numbers.

        Raises:
            Refusal: ``USAGE`` if the inputs do not match, ``INPUTS_CHANGED`` if they are not the same afterwards.
        """
        arrays = [np.asarray(array) for array in inputs]
        got = tuple(ArraySpec(shape=a.shape, dtype=a.dtype.name) for a in arrays)
        if got != self.inputs:
            raise Refusal(
                Status.USAGE,
                f"inputs {', '.join(map(str, got))} where the program takes {', '.join(map(str, self.inputs))}",
            )
        start = time.perf_counter()
        config = np.array([seed, fill], np.int32)
        if self._compiled is None:
            self._compiled = jax.jit(self._exported.call).lower(*arrays, config).compile()
        *outputs, report = jax.block_until_ready(self._compiled(*arrays, config))
        return RunResult(
            outputs=tuple(np.asarray(output) for output in outputs),
            findings=self._findings(np.asarray(report)),
            seconds=time.perf_counter() - start,
        )

    def check(self, inputs: Sequence[np.ndarray], *, seed: int = 1) -> RunResult:
        """Execute the program as ``run`` does, and again with other unwritten memory and another parallel order.

        The outputs of all executions must be the same to the bit; where they are not, that is a finding.
        """
        first = self.run(inputs)
        findings, seconds = list(first.findings), first.seconds
        for kind, options, message in (
            (Kind.UNINITIALISED, {"fill": 3}, "output {} depends on what memory held before it was written"),
            (Kind.ORDER_DEPENDENT, {"seed": seed}, "output {} depends on the order of the parallel grid dimensions"),
        ):
            other = self.run(inputs, **options)
            seconds += other.seconds
            differing = [
                i
                for i, (a, b) in enumerate(zip(first.outputs, other.outputs, strict=True))
                if a.tobytes() != b.tobytes()
            ]
            findings += [
                Finding(kind=kind, operation="", grid_step=(), location="", message=message.format(i))
                for i in differing
            ]
        return RunResult(outputs=first.outputs, findings=tuple(findings), seconds=seconds)

    def _findings(self, report: np.ndarray) -> tuple[Finding, ...]:
        found = []
        for kernel, sites, flags in zip(
            self.kernels, self._sites, report.reshape(-1, splice.REPORT_WIDTH), strict=False
        ):
            for i in range(len(KINDS)):
                step, site = int(flags[2 * i]), int(flags[2 * i + 1])
                if site < 0:
                    continue
                at = sites[site]
                found.append(
                    Finding(
                        kind=at.kind,
                        operation=at.operation,
                        grid_step=_coordinates(step, kernel),
                        location=at.location,
                        message=f"kernel {kernel.name}: {at.message}",
                    )
                )
        return tuple(found)


def load(tpu_program: bytes, *, f32_matmul_passes: str = "mxu") -> Loaded:
    """Parse an exported TPU program and translate its kernels.

    Args:
        tpu_program: A serialised ``jax.export`` artefact for platform ``tpu``.
        f32_matmul_passes: See ``machine.Options``.

    Raises:
        Refusal: ``CANNOT_VERIFY`` for an operation, type or attribute that is not known, ``HOST_CALLBACK`` for a
            program that calls back to the host or depends on the platform.
    """
    try:
        exported = export.deserialize(bytearray(tpu_program))
    except Exception as error:  # flatbuffers raises nearly anything on corrupt bytes
        raise Refusal(Status.CANNOT_VERIFY, f"the artefact cannot be read: {type(error).__name__}: {error}") from None
    return Loaded(exported, Options(f32_matmul_passes=f32_matmul_passes))


def _check_program(exported: Any) -> None:
    if tuple(exported.platforms) != ("tpu",):
        raise Refusal(Status.HOST_CALLBACK, f"the program is for platforms {exported.platforms}; wanted tpu alone")
    if exported.ordered_effects or exported.unordered_effects:
        raise Refusal(Status.HOST_CALLBACK, "the program has side effects on the host; a kernel may not")
    if exported.uses_global_constants:
        raise Refusal(Status.CANNOT_VERIFY, "the program has symbolic shapes; export it with the scored ones")


def _spec(aval: Any) -> ArraySpec:
    return ArraySpec(shape=tuple(aval.shape), dtype=np.dtype(aval.dtype).name)


def _coordinates(step: int, kernel: Kernel) -> tuple[int, ...]:
    """Grid coordinates of a linear step; the linear number itself where bounds are dynamic."""
    if not kernel.bounds or step < 0:
        return ()
    if kernel.dynamic_bounds:
        return (step,)
    out = []
    for bound in reversed(kernel.bounds):
        assert bound is not None
        out.append(step % bound)
        step //= bound
    return tuple(out[::-1])
