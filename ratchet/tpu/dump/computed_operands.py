"""Operands of kernels that may steer them and that XLA computes beside them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ratchet.tpu.dump.hlo import HloModule, HloOp
from ratchet.tpu.dump.layout import ArrayType

SCALARS = 1024
"""An operand of float32 or narrow integers with at most so many elements may be scalars, by which a kernel branches."""
_INTEGERS = ("s32", "u32")
_MOST = 1 << 20
"""Elements of the largest table that is taken: four times what scalar memory holds."""


@dataclass(frozen=True, kw_only=True)
class ComputedOperand:
    """One such operand, in the compiled program and in the artefact."""

    launch: str
    """Name of the HLO instruction that launches the kernel."""
    place: int
    """Number among the operands of the launch."""
    site: str
    """Name of the call in the artefact (``mosaic.calls.Call.site``)."""
    number: int
    """Number among the operands of the call."""
    type: ArrayType


def computed_operands(hlo: HloModule) -> tuple[ComputedOperand, ...]:
    """Every operand of a kernel that may steer it and is a copy of neither an entry parameter nor a constant."""
    return tuple(_computed(hlo))


def _computed(hlo: HloModule) -> Iterator[ComputedOperand]:
    for launch, kernel in hlo.launches.items():
        for number in range(len(kernel.operands)):
            place = hlo.launched_operand(launch, number)
            if place is None:
                continue
            operand = hlo.operands(hlo.ops[launch])[place]
            if len(operand.types) != 1 or not _steers(operand.types[0]) or _is_known(hlo, operand):
                continue
            site = "/".join(kernel.op_name.split("/")[-2:])
            yield ComputedOperand(launch=launch, place=place, site=site, number=number, type=operand.types[0])


def _steers(array: ArrayType) -> bool:
    most = _MOST if array.dtype in _INTEGERS else SCALARS
    return array.may_steer and math.prod(array.shape) <= most


def _is_known(hlo: HloModule, operand: HloOp) -> bool:
    origin = hlo.origin(operand.name)
    if origin.opcode == "constant":
        return origin.literal is not None
    return origin.parameter is not None and origin.computation == hlo.entry
