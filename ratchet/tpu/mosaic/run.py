"""Runs an exported TPU program on the CPU; returns outputs and findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ratchet.tpu import exporting
from ratchet.tpu.mlir.bindings import ir, rebuilt, stablehlo_of
from ratchet.tpu.mlir.calls import give_kernels_calls_of_their_own
from ratchet.tpu.mosaic import hazards
from ratchet.tpu.mosaic.findings import RunResult
from ratchet.tpu.mosaic.state import Options
from ratchet.tpu.mosaic.translation import Translations, readable

SCATTERED = 1
"""The seed of the other order of steps that programs are checked with."""


class Loaded(Translations):
    """A TPU program that can be executed."""

    def run(self, inputs: Sequence[np.ndarray], **changed: int) -> RunResult:
        """Execute the program once, for its values.

        Args:
            inputs: One array per input, of the declared shape and dtype.
            changed: See ``Translation.run``.

        Raises:
            Refusal: ``USAGE`` if the inputs do not match, ``INFRASTRUCTURE`` if this process has too few devices.
        """
        return self.with_options(**self.first).run(self.place(inputs), **changed)

    def begin_check(self) -> None:
        """Prepare for ``check`` in the background."""
        hazards.begin(self)

    def check(self, inputs: Sequence[np.ndarray], *, seed: int = SCATTERED, at_once: bool = False) -> RunResult:
        """Execute the program, and again with what must not matter changed (see ``hazards.check``)."""
        return hazards.check(self, inputs, seed=seed, at_once=at_once)


def load(tpu_program: bytes, *, f32_matmul_passes: str = "mxu") -> Loaded:
    """Parse an exported TPU program and translate its kernels.

    Args:
        tpu_program: A serialised ``jax.export`` artefact for platform ``tpu``.
        f32_matmul_passes: See ``state.Options``.

    Raises:
        Refusal: ``CANNOT_VERIFY`` for an operation, type or attribute that is not known, ``HOST_CALLBACK`` for a
            program that calls back to the host or depends on the platform.
    """
    with readable():
        exported = _with_calls_of_their_own(exporting.read(tpu_program))
    return translated(exported, Options(f32_matmul_passes=f32_matmul_passes))


def _with_calls_of_their_own(exported: Any) -> Any:
    """A program whose kernels have calls of their own, as the compiler gets it: what is sharded may call functions."""
    module = stablehlo_of(exported)
    with module.context, ir.Location.unknown():
        moved = give_kernels_calls_of_their_own(module.operation)
    return rebuilt(exported, module) if moved else exported


def translated(exported: Any, options: Options) -> Loaded:
    """A program, translated. Whatever its modules make the translation raise is a refusal.

    Raises:
        Refusal: as :func:`load`.
    """
    with readable():
        return Loaded(exported, options)
