"""Operands of kernels that may steer them and that XLA computes: which there are, and reading their values. Pure.

The values child names an array ``index:number:site``: the mesh index, the operand's number and its call's site.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.tpu.dump.hlo import HloModule, HloOp
from ratchet.tpu.dump.layout import ArrayType
from ratchet.values.status import Refusal, Status

Steering = Mapping[int | str, Any]
"""Arrays that may steer a kernel: inputs by position, computed operands by ``"launch:place"``."""
Draw = tuple[Steering, list[Steering]]
"""Of one draw of the inputs those that steer, and what XLA computes of the draw, per mesh index."""

SCALARS = 1024
"""An operand of float32 or narrow integers with at most so many elements may be scalars, by which a kernel branches."""
_INTEGERS = ("s32", "u32")
MOST_ELEMENTS = 1 << 20
"""Of an array of integers that steers: four times what scalar memory holds."""


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
    """Every operand of a kernel that may steer it and is a copy of neither an entry parameter nor a constant.

    Raises:
        Refusal: ``SCHEDULE_UNKNOWN`` for a kernel whose configuration does not read.
    """
    return tuple(_computed(hlo))


def _computed(hlo: HloModule) -> Iterator[ComputedOperand]:
    for launch, kernel in hlo.launches.items():
        try:
            if kernel.is_of_sparse_cores:
                continue  # values that steer it are not followed
        except ValueError as error:
            raise Refusal(
                Status.SCHEDULE_UNKNOWN, f"the configuration of {kernel.name} does not read: {error}"
            ) from None
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
    most = MOST_ELEMENTS if array.dtype in _INTEGERS else SCALARS
    return array.may_steer and math.prod(array.shape) <= most


def _is_known(hlo: HloModule, operand: HloOp) -> bool:
    origin = hlo.origin(operand.name)
    if origin.opcode == "constant":
        return origin.literal is not None
    return origin.parameter is not None and origin.computation == hlo.entry


def wanted(operands: Sequence[ComputedOperand]) -> dict[str, list[int]]:
    """Numbers of the operands by the site of their call."""
    numbers: dict[str, list[int]] = {}
    for operand in operands:
        numbers.setdefault(operand.site, []).append(operand.number)
    return numbers


def read(
    stored: Mapping[str, Any], operands: Sequence[ComputedOperand], chips: int, *, prefix: str = ""
) -> list[Steering]:
    """The operands in ``stored``, per mesh index; nothing where there are none.

    Raises:
      Refusal: as ``Arrays``, where one is not there.
    """
    if not operands:
        return []
    return [
        {f"{one.launch}:{one.place}": stored[f"{prefix}{index}:{one.number}:{one.site}"] for one in operands}
        for index in range(chips)
    ]


def check_shapes(operands: Sequence[ComputedOperand], steering: Steering) -> None:
    """Refuse a compiled program whose operands have other shapes than the artefact's.

    One that differs from run to run of its kernel has all runs in its first dimension. XLA has to have left one launch
    of that kernel: of several it is not known which one is which run.

    Raises:
      Refusal: ``SCHEDULE_UNKNOWN``.
    """
    for one in operands:
        shape = steering[f"{one.launch}:{one.place}"].shape
        launches = {other.launch for other in operands if other.site == one.site}
        if len(shape) > len(one.type.shape) and len(launches) > 1:
            raise Refusal(
                Status.SCHEDULE_UNKNOWN,
                f"XLA made {len(launches)} launches of one kernel in a loop, {one.launch} among them, and its tables "
                "differ from turn to turn; wanted a loop that is not unrolled",
            )
        if one.type.shape not in (shape, shape[1:]):
            raise Refusal(
                Status.SCHEDULE_UNKNOWN,
                f"operand {one.place} of {one.launch} is {one.type} in the compiled program, the artefact's call has "
                f"{list(shape)} there: the compiler reordered or reshaped the operands of a kernel",
            )
