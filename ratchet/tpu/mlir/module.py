"""A kernel as plain values: what the bindings read out of a Mosaic module. Nothing here knows MLIR or JAX."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ratchet.values.status import Refusal, Status


@dataclass(frozen=True, kw_only=True)
class Type:
    """Type of one SSA value."""

    kind: str
    """``scalar``, ``vector`` or ``memref``."""
    shape: tuple[int, ...] = ()
    dtype: str
    """Element type as Mosaic spells it: ``f32``, ``bf16``, ``i32``, ``i1``, ``index``, ``dma_semaphore`` …"""
    space: str = ""
    """Memory space of a memref: ``vmem``, ``smem``, ``any``, ``hbm``, ``semaphore_mem`` …"""

    def __str__(self) -> str:
        if self.kind == "scalar":
            return self.dtype
        return f"{self.kind}<{'x'.join(map(str, (*self.shape, self.dtype)))}>"


@dataclass(eq=False)
class Value:
    """One SSA value; identity is its meaning."""

    type: Type
    owner: Op | None = None
    """The operation that defines it; ``None`` for a block argument."""


@dataclass(eq=False)
class Block:
    arguments: tuple[Value, ...]
    operations: tuple[Op, ...]


@dataclass(eq=False)
class Op:
    """One operation, e.g. ``arith.addf``."""

    name: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attributes: dict[str, Any]
    """Python values where the attribute has a plain counterpart, its text otherwise."""
    regions: tuple[Block, ...]
    location: str
    """``file:line`` of the kernel's source, or of the operation around this one; ``""`` if neither has any."""

    def walk(self) -> Iterator[Op]:
        """This operation and every operation nested in it, in order."""
        return iter(self._all)

    @functools.cached_property
    def _all(self) -> tuple[Op, ...]:
        """Asked for again and again while a kernel is translated."""
        return (self, *(one for block in self.regions for inner in block.operations for one in inner.walk()))


@dataclass(frozen=True, kw_only=True)
class Function:
    name: str
    body: Block
    attributes: dict[str, Any]

    @property
    def is_kernel(self) -> bool:
        """Whether it is no index map. JAX names the core since 0.10; before, only a kernel had scratch operands."""
        return "tpu.core_type" in self.attributes or "scratch_operands" in self.attributes


@dataclass(frozen=True, kw_only=True)
class KernelModule:
    """The Mosaic module of one custom call."""

    version: int
    functions: dict[str, Function]

    @functools.cached_property
    def on_sparse_core(self) -> bool:
        """Whether it runs on a SparseCore's subcores rather than on the TensorCore."""
        cores = (str(function.attributes.get("tpu.core_type", "")) for function in self.functions.values())
        return any("<sc_" in core for core in cores)

    def operations(self) -> Iterator[Op]:
        for function in self.functions.values():
            for op in function.body.operations:
                yield from op.walk()

    def refusal(self, what: str, op: Op | None = None, why: str = "") -> Refusal:
        """For ``what`` this module holds and nobody here can execute; ``why``, and what to do."""
        at = f" at {op.location}" if op is not None and op.location else ""
        message = (
            f"{what}{at} (Mosaic module version {self.version}) is not something this judge can execute for its values"
        )
        return Refusal(Status.CANNOT_VERIFY, message + (why and f": {why}"))
