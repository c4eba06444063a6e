"""Counters of what a kernel executes: which operations have one, and what the counts say of control flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from ratchet.tpu.mlir.module import KernelModule, Op
from ratchet.values.control import ControlFlow

THEN, OTHERWISE = 0, 1
"""Counters of a conditional, by body."""

_COUNTERS = {"scf.if": 2, "scf.for": 1, "scf.while": 1, "tpu.enqueue_dma": 1}


def counters(kernel: KernelModule) -> dict[Op, int]:
    """Number of the first counter of each operation that has some. Index maps have none: they run ahead of steps."""
    first_of, number = {}, 0
    for function in kernel.functions.values():
        if not function.is_kernel:
            continue
        for op in (op for outer in function.body.operations for op in outer.walk()):
            if op.name in _COUNTERS:
                first_of[op] = number
                number += _COUNTERS[op.name]
    return first_of


def width(kernel: KernelModule) -> int:
    """How many counters a kernel has."""
    return sum(_COUNTERS[op.name] for op in counters(kernel))


def control_flow(counted: Iterable[tuple[KernelModule, Sequence[int] | np.ndarray]]) -> ControlFlow:
    """What the counters of some kernels say. Operations without a place are left out."""
    branches: dict[str, tuple[int, int]] = {}
    loops: Counter[str] = Counter()
    copies: Counter[str] = Counter()
    for kernel, counts in counted:
        for op, number in counters(kernel).items():
            if not op.location:
                continue
            if op.name == "scf.if":
                then, otherwise = branches.get(op.location, (0, 0))
                branches[op.location] = (
                    then + int(counts[number + THEN]),
                    otherwise + int(counts[number + OTHERWISE]),
                )
            else:
                (copies if op.name == "tpu.enqueue_dma" else loops)[op.location] += int(counts[number])
    return ControlFlow(branches=branches, loops=dict(loops), copies=dict(copies))
