"""Which way the machine went: its counts, by the operation that an instruction was compiled from."""

from __future__ import annotations

from collections import Counter

from ratchet.tpu.machine.record import Record, Run
from ratchet.values.control import ControlFlow
from ratchet.values.tokens import SOURCE_FILE


def control_flow(run: Run, record: Record) -> ControlFlow | None:
    """The branches, loops and DMA starts of one chip's kernels; None where undecided branches all went one way.

    A conditional compiles to a branch forward that passes its body by, a loop to a branch back after each turn; the
    compiler repeats the operation's place behind both. One that it unrolled, predicated or decided has no branch and is
    left out, as is code without a place: the pipeline around a kernel's body.
    """
    if run.undecided is not None:
        return None
    executed: dict[str, Counter[str]] = {kind: Counter() for kind in ("branch", "branch taken", "loop", "copy")}
    for (source, kind), times in record.executions().items():
        if kind in executed and source.operation is not None:
            executed[kind][f"{SOURCE_FILE}:{source.operation}"] += times
    taken = executed["branch taken"]
    return ControlFlow(
        branches={place: (times - taken[place], taken[place]) for place, times in executed["branch"].items()},
        loops=dict(executed["loop"]),
        copies=dict(executed["copy"]),
    )
