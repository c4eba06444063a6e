"""An exported TPU program as it is read: what it takes and gives, its kernels, and what can be said of them."""

from __future__ import annotations

import functools
import hashlib
import math
from typing import Any

import numpy as np

from ratchet.tpu.mlir.bindings import parse_kernel, stablehlo_of
from ratchet.tpu.mlir.calls import kernel_calls, walk
from ratchet.tpu.mlir.signature import Kernel, describe
from ratchet.tpu.mosaic.rules import draws, is_remote, root_of
from ratchet.tpu.mosaic.state import data_written
from ratchet.values import ArraySpec
from ratchet.values.status import Refusal, Status

_BRANCHING = frozenset({"stablehlo.case", "stablehlo.if", "stablehlo.while"})


class Program:
    """A program whose kernels are parsed; nothing is translated yet.

    Raises:
        Refusal: as ``run.load``.
    """

    def __init__(self, exported: Any) -> None:
        _check(exported)
        self.exported = exported
        self.inputs = tuple(_spec(aval) for aval in exported.in_avals)
        self.outputs = tuple(_spec(aval) for aval in exported.out_avals)
        module = stablehlo_of(exported)
        self._has_branches = any(op.name in _BRANCHING for op in walk(module.operation))
        self.calls = kernel_calls(module)
        self.modules = {body: parse_kernel(body) for body in dict.fromkeys(call.body for call in self.calls)}

    @functools.cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Of every call, in the order in which they are lowered."""
        return tuple(describe(call, self.modules[call.body]) for call in self.calls)

    @property
    def devices(self) -> int:
        """How many it is sharded over."""
        return int(self.exported.nr_devices)

    @property
    def covered(self) -> tuple[str, ...]:
        """Names of the operations of the kernels, sorted."""
        return tuple(sorted({op.name for module in self.modules.values() for op in module.operations()}))

    @property
    def has_orders(self) -> bool:
        """Whether grid dimensions are parallel: their steps may run in any order."""
        return any("parallel" in semantics for kernel in self.kernels for semantics in kernel.semantics)

    @property
    def draws(self) -> bool:
        """Whether a kernel of it draws bits on the core."""
        return any(map(draws, self.modules.values()))

    @property
    def sends(self) -> bool:
        """Whether its chips write into each other."""
        return any(is_remote(op) for module in self.modules.values() for op in module.operations())

    @property
    def elements_copied_into(self) -> int:
        """Elements of all arrays that DMAs write into."""
        targets = {root_of(value) for module in self.modules.values() for value in data_written(module)}
        return sum(math.prod(value.type.shape) for value in targets)

    @property
    def has_scalar_inputs(self) -> bool:
        """Whether scalars that are read from memory may decide what the program does."""
        by_scalars = any(kernel.prefetch or kernel.dynamic_bounds for kernel in self.kernels)
        return self._has_branches or by_scalars or "memref.load" in self.covered

    @property
    def modules_sha256(self) -> tuple[str, ...]:
        """Digests of the serialised Mosaic modules that are executed, sorted."""
        return tuple(sorted(hashlib.sha256(body).hexdigest() for body in self.modules))

    @property
    def sha256(self) -> str:
        """Digest of the program's code: its operations with what they are marked with."""
        return hashlib.sha256(self.exported.mlir_module_serialized).hexdigest()

    @property
    def module_version(self) -> int:
        """Largest version of the kernels' ``stable_mosaic`` modules; 0 for a program without kernels."""
        return max((module.version for module in self.modules.values()), default=0)


def _check(exported: Any) -> None:
    if tuple(exported.platforms) != ("tpu",):
        raise Refusal(Status.HOST_CALLBACK, f"the program is for platforms {exported.platforms}; wanted tpu alone")
    if exported.ordered_effects or exported.unordered_effects:
        raise Refusal(Status.HOST_CALLBACK, "the program has side effects on the host; a kernel may not")
    if exported.uses_global_constants:
        raise Refusal(Status.CANNOT_VERIFY, "the program has symbolic shapes; export it with the scored ones")


def _spec(aval: Any) -> ArraySpec:
    return ArraySpec(shape=tuple(aval.shape), dtype=np.dtype(aval.dtype).name)
