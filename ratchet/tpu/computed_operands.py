"""Operands of kernels that XLA computes beside them: how the values child is asked for them, and reading its arrays.

Pure. The child names an array ``index:number:site``: the mesh index, the operand's number and its call's site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ratchet.tpu.dump.computed_operands import ComputedOperand
from ratchet.values.status import Refusal, Status

Steering = Mapping[int | str, Any]
"""Arrays that may steer a kernel: inputs by position, computed operands by ``"launch:place"``."""
Draw = tuple[Steering, list[Steering]]
"""Of one draw of the inputs those that steer, and what XLA computes of the draw, per mesh index."""


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

    Raises:
      Refusal: ``SCHEDULE_UNKNOWN``.
    """
    for one in operands:
        shape = steering[f"{one.launch}:{one.place}"].shape
        if shape != one.type.shape:
            raise Refusal(
                Status.SCHEDULE_UNKNOWN,
                f"operand {one.place} of {one.launch} is {one.type} in the compiled program, the artefact's call has "
                f"{list(shape)} there: the compiler reordered or reshaped the operands of a kernel",
            )
