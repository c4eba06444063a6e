"""Scalar operations that a core executes over and over, as plain functions of the values before them.

Each is executed once by the rule that other kernels are traced with, which refuses what is not known. What it computes
of int32 is defined in ``ratchet.tpu.scalar``, here as there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ratchet.tpu.mlir.module import Op, Value
from ratchet.tpu.mosaic.scalars import FOLDED
from ratchet.tpu.scalar import RELATIONS, Undefined

Values = dict[Value, Any]
Quick = Callable[[Values], bool]
"""Binds the result of one operation; whether it is defined."""
_WORDS = frozenset({"i32", "index"})
_SIGNED = {0: "eq", 1: "ne", 2: "lt", 3: "le", 4: "gt", 5: "ge"}


def quick(op: Op) -> Quick | None:
    """How to execute an operation quickly; None for one that the rule executes every time."""
    words = all(value.type.kind == "scalar" and value.type.dtype in _WORDS for value in op.operands)
    if op.name == "arith.select":
        return _select(op)
    if not words:
        return None
    if op.name in FOLDED:
        return _folded(op, FOLDED[op.name])
    if op.name in ("arith.index_cast", "arith.index_castui") and op.results[0].type.dtype in _WORDS:
        return _same(op)
    if op.name == "arith.cmpi" and int(op.attributes["predicate"]) in _SIGNED:
        return _compared(op, RELATIONS[_SIGNED[int(op.attributes["predicate"])]])
    return None


def _folded(op: Op, compute: Callable[[int, int], Any]) -> Quick:
    (a, b), (out,) = op.operands, op.results

    def run(values: Values) -> bool:
        answer = compute(int(values[a]), int(values[b]))
        if isinstance(answer, Undefined):
            return False
        values[out] = np.int32(answer)
        return True

    return run


def _same(op: Op) -> Quick:
    (a,), (out,) = op.operands, op.results

    def run(values: Values) -> bool:
        values[out] = values[a]
        return True

    return run


def _compared(op: Op, holds: Callable[[Any, Any], bool]) -> Quick:
    (a, b), (out,) = op.operands, op.results

    def run(values: Values) -> bool:
        values[out] = np.bool_(holds(values[a], values[b]))
        return True

    return run


def _select(op: Op) -> Quick:
    (condition, a, b), (out,) = op.operands, op.results

    def run(values: Values) -> bool:
        values[out] = values[a] if values[condition] else values[b]
        return True

    return run
