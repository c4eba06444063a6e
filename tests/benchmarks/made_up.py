"""Published timings that are made up, with tapes that are made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.lib.published.cases import Array, Case
from benchmarks.lib.published.tape import START, WAIT, Tape
from benchmarks.lib.published.timed import Timed

HBM_TO_VMEM, VMEM_TO_HBM, VMEM_TO_VMEM = 1, 4, 5


def case(number: int | str, **other: Any) -> Case:
    known: dict[str, Any] = {
        "number": str(number), "source": "made up", "kernel": "a kernel", "chip": "v5e", "config": {}, "status": "ok",
        "arrays": (Array(dtype="bf16", shape=(8, 8)),), "measured_ms": 1.0, "timer": "device", "doubtful": False,
    }  # fmt: skip
    return Case(**known | other)


def tape(events: Sequence[tuple[int, ...]] = (), tail_cycles: int = 0, **facts: float) -> Tape:
    return Tape(events=np.array(events, np.int64).reshape(-1, 6), tail_cycles=tail_cycles, facts=facts)


def copies(count: int, granules: int, compute: int, *, writes: bool = False) -> Tape:
    """Reads that are waited for one by one, with cycles between them; each with a write that is not waited for."""
    events = []
    for flag in range(1, 2 * count, 2):
        events += [(START, compute, HBM_TO_VMEM, granules, flag, 0), (WAIT, 0, granules, 0, flag, 0)]
        events += [(START, 0, VMEM_TO_HBM, granules, flag + 1, 0)] if writes else []
    return tape(events)


def timed(one: Case, run: Tape) -> Timed:
    return Timed(case=one, tape=run, identity=one.number)


def measured(rows: Sequence[Timed], times: Sequence[float] | np.ndarray, **changes: Any) -> list[Timed]:
    """The rows with other timings."""
    return [
        replace(row, case=replace(row.case, measured_ms=float(ms), **changes))
        for row, ms in zip(rows, times, strict=True)
    ]
