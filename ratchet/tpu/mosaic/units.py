"""The matrix units that a kernel's explicit operations name, and what each of them holds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from ratchet.tpu.mlir.module import KernelModule, Op
from ratchet.tpu.mosaic.arrays import Array, jax_dtype, kept_as
from ratchet.tpu.mosaic.memory import Buffer
from ratchet.tpu.mosaic.rules import MATRIX_UNIT, integer

_REGISTER = 8 * 128
"""Elements of 32 bits in a vector register: the unit of an accumulator's address."""


@dataclass(frozen=True)
class Held:
    """A matrix, and whether there is one."""

    data: Buffer
    full: Buffer


@dataclass(frozen=True)
class Unit:
    """One matrix unit: matrices that are staged, by register; the one it multiplies by; accumulators by address."""

    staging: dict[int, Held]
    loaded: Held
    accumulators: dict[int, Held]

    def empty(self) -> Iterator[tuple[Buffer, Array]]:
        """All of its memory, and what that is when nothing is in it."""
        for held in (*self.staging.values(), self.loaded, *self.accumulators.values()):
            for buffer in (held.data, held.full):
                yield buffer, jnp.zeros(buffer.shape, kept_as(buffer.dtype))

    @property
    def must_be_empty(self) -> list[Buffer]:
        """Whether each of what may hold nothing at the end does."""
        return [held.full for held in (*self.staging.values(), *self.accumulators.values())]


def units_of(kernel: KernelModule) -> dict[int, Unit]:
    """The matrix units of a kernel, by number; none where it has no explicit operation.

    Raises:
        Refusal: ``CANNOT_VERIFY`` where one place holds matrices of several shapes or types, or accumulators overlap.
    """
    found: dict[int, list[Op]] = {}
    for op in kernel.operations():
        if op.name in MATRIX_UNIT:
            found.setdefault(integer(op, "mxu_index"), []).append(op)
    return {number: _unit(kernel, number, ops) for number, ops in found.items()}


def _unit(kernel: KernelModule, number: int, ops: list[Op]) -> Unit:
    staging: dict[int, Held] = {}
    accumulators: dict[int, Held] = {}
    for op in ops:
        if op.name == "tpu.matmul_push_rhs":
            type_, at = op.operands[0].type, integer(op, "staging_register", 0)
            shape = type_.shape[::-1] if op.attributes.get("transpose") else type_.shape
            _add(kernel, op, staging, at, _held(f"staged in {number} at {at}", shape, jax_dtype(type_.dtype)))
        if op.name == "tpu.matmul_pop":
            type_, at = op.results[0].type, integer(op, "acc")
            _add(kernel, op, accumulators, at, _held(f"in {number} at {at}", type_.shape, jax_dtype(type_.dtype)))
    kinds = {(held.data.shape, held.data.dtype) for held in staging.values()}
    if len(kinds) != 1 or any(_missing(op, staging, accumulators) for op in ops):
        raise kernel.refusal(f"matrix unit {number}, which is not pushed to, loaded and popped alike", ops[0])
    end = 0
    for address, held in sorted(accumulators.items()):
        if address < end:
            raise kernel.refusal(f"accumulators of matrix unit {number} that overlap", ops[0])
        end = address + math.prod(held.data.shape) // _REGISTER
    ((shape, dtype),) = kinds
    return Unit(staging, _held(f"loaded in {number}", shape, dtype), accumulators)


def _missing(op: Op, staging: dict[int, Held], accumulators: dict[int, Held]) -> bool:
    """Whether an operation names what no other fills or takes from."""
    if op.name != "tpu.matmul_acc_lhs":
        return False
    loads = "load_staged_rhs" in op.attributes
    return integer(op, "acc") not in accumulators or (loads and integer(op, "load_staged_rhs") not in staging)


def _add(kernel: KernelModule, op: Op, held: dict[int, Held], at: int, new: Held) -> None:
    old = held.setdefault(at, new)
    if (old.data.shape, old.data.dtype) != (new.data.shape, new.data.dtype):
        raise kernel.refusal(f"matrices of several shapes or types {new.data.name}", op)


def _held(name: str, shape: tuple[int, ...], dtype: np.dtype) -> Held:
    data = Buffer(name=name, shape=shape, dtype=dtype, space="judge")
    return Held(data, Buffer(name=f"whether any is {name}", shape=(), dtype=np.dtype(np.int32), space="judge"))
