"""Spans of the modelled timeline: the first, some steady and the last grid steps one by one, the rest summarised.

Nothing is dropped silently: what is between kept windows becomes one labelled span per lane. No span ends before it
begins or is outside the run, however transfers overlap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ratchet.tpu.account.shares import Shares
from ratchet.tpu.chips.units import CAPACITY
from ratchet.tpu.machine.dma import Ends
from ratchet.tpu.machine.grid_steps import KernelSteps
from ratchet.tpu.machine.record import Record
from ratchet.values import Span, SpanKind

WINDOW_STEPS = 32
"""Grid steps kept at the beginning, in the middle and at the end of a kernel."""
DETAIL_STEPS = 512
"""The same when detail is asked for."""
KEPT_OPS = 500
"""Executions of HLO ops kept at each end."""
KEPT_TRANSFERS = 400
"""DMAs and waits kept at each end of a program without a pipeline loop."""

LANES = ("MXU", "VALU", "XLU", "EUP", "VLOAD", "VSTORE", "SALU", "stalls")
"""Lanes of units, and that of empty bundles."""
LEAST_BUSY = 0.001
"""Units below this share get no span."""

Value = int | float | str


def span(lane: str, kind: SpanKind, start: int, end: int, name: str = "", /, **attributes: Value) -> Span:
    """A span from cycle ``start`` to ``end``."""
    return Span(lane=lane, kind=kind, name=name, start_cycles=start, end_cycles=end, attributes=attributes)


def make_spans(record: Record, shares: Mapping[str, Shares], *, detail: bool, mxu_per_core: int) -> tuple[Span, ...]:
    """All spans, by lane."""
    keep = DETAIL_STEPS if detail else WINDOW_STEPS
    spans = [span("XLA Modules", SpanKind.RUN, 0, record.cycles)]
    spans += _op_spans(record)
    windows: list[tuple[int, int]] = []
    for name, kernel in record.steps.kernels.items():
        if not kernel.starts:
            continue
        busy = np.array([unit_cycles(shares[name], path.counts, mxu_per_core) for path in kernel.paths])
        own, kept = _step_spans(name, kernel, busy, keep)
        spans += own
        windows += kept
    spans += _whole_ops(record, shares, mxu_per_core)
    spans += _transfer_spans(record, sorted(windows))
    return tuple(_within(one, record.cycles) for one in spans)


def _within(one: Span, cycles: int) -> Span:
    """The span, cut where the run ends: a copy that nobody waits for may be under way then."""
    return one if one.end_cycles <= cycles else replace(one, end_cycles=max(one.start_cycles, cycles))


def unit_cycles(shares: Shares, counts: Sequence[int], mxu_per_core: int) -> list[float]:
    """For how many cycles each lane is busy when the blocks of a listing are executed ``counts`` times."""
    times = shares.times(counts)
    issued = shares.slot_issues(times)
    busy = {slot: issued[slot] / CAPACITY[slot] for slot in LANES if slot in CAPACITY}
    busy["MXU"] = int((times @ shares.mxu).sum()) / mxu_per_core
    busy["XLU"] = int((times @ shares.xlu).sum()) / CAPACITY["XLU"]
    busy["stalls"] = int(times[shares.empty].sum())
    return [busy[lane] for lane in LANES]


def _lane_spans(busy: Sequence[float], start: int, end: int, *, op: str = "", steps: int = 1) -> list[Span]:
    """One span per lane that is busy between two cycles, during an op or so many grid steps."""
    spans = []
    for lane, cycles in zip(LANES, busy, strict=True):
        share = cycles / max(1, end - start)
        if share >= LEAST_BUSY:
            together = {"steps": steps} if steps > 1 else {}
            spans.append(span(lane, SpanKind.BUSY, start, end, op, busy_share=round(share, 4), **together))
    return spans


def _op_spans(record: Record) -> list[Span]:
    runs = _both_ends(record.op_runs, KEPT_OPS)
    spans = [
        span("XLA Ops", SpanKind.NAMED, r.start, r.end, r.name, opcode=record.opcodes.get(r.name, "runtime"))
        for r in runs
    ]
    left_out = record.op_runs.count - len(runs)
    if left_out:
        # Runs are kept in the order of their ends, and one may hold others: its start proves nothing.
        first, last = runs[KEPT_OPS - 1].end, runs[-KEPT_OPS].end
        spans.append(span("XLA Ops", SpanKind.SUMMARY, first, max(first, last), count=left_out))
    return spans


def _whole_ops(record: Record, shares: Mapping[str, Shares], mxu_per_core: int) -> list[Span]:
    """Lanes of units for what has no grid steps: one span per execution, with the average over all of them."""
    spans: list[Span] = []
    for item in _both_ends(record.op_runs, KEPT_OPS):
        unit = record.unit_of_op.get(item.name, item.name)
        kernel = record.steps.kernels.get(unit)
        if unit not in shares or (kernel is not None and kernel.starts):
            continue
        counts = record.units[unit][0].counts
        busy = unit_cycles(shares[unit], counts, mxu_per_core)
        spans += _lane_spans([cycles / max(1, counts[0]) for cycles in busy], item.start, item.end, op=item.name)
    return spans


def _both_ends(ends: Ends, keep: int) -> list[Any]:
    items = [*ends.first, *ends.last]
    return items if ends.count <= 2 * keep else [*items[:keep], *items[-keep:]]


def _step_spans(
    name: str, kernel: KernelSteps, busy: np.ndarray, keep: int
) -> tuple[list[Span], list[tuple[int, int]]]:
    """Spans of one kernel's grid steps and their units, and the windows of cycles in which single steps were kept."""
    starts, ends = kernel.starts, kernel.ends
    paths = np.array(kernel.path_numbers)
    count = len(starts)
    middle = count // 2
    ranges = [(0, keep), (middle, middle + keep), (count - keep, count)] if count > 3 * keep else [(0, count)]
    spans: list[Span] = []
    windows: list[tuple[int, int]] = []
    reached = 0
    for low, high in ranges:
        if low > reached:
            start, end, steps = starts[reached], ends[low - 1], low - reached
            spans.append(
                span(
                    "Steps",
                    SpanKind.STEPS,
                    start,
                    end,
                    name,
                    first_step=reached,
                    last_step=low - 1,
                    steps=steps,
                    mean_cycles=(end - start) / steps,
                    wait_cycles=sum(kernel.step_waits[reached:low]),
                )
            )
            together = np.bincount(paths[reached:low], minlength=len(busy)) @ busy
            spans += _lane_spans(together.tolist(), start, end, steps=steps)
        for i in range(low, high):
            waited = kernel.step_waits[i]
            spans.append(span("Steps", SpanKind.STEP, starts[i], ends[i], name, step=i, wait_cycles=waited))
            spans += _lane_spans(busy[paths[i]].tolist(), starts[i], ends[i])
        windows.append((starts[low], ends[high - 1]))
        reached = high
    return spans, windows


class _Gaps:
    """What was issued outside the kept windows, summed up per gap between them and per lane."""

    def __init__(self, windows: Sequence[tuple[int, int]]) -> None:
        self._starts = [start for start, _ in windows]
        self._windows = windows
        self._sums: dict[tuple[int, str], list[int]] = {}

    def keeps(self, cycle: int) -> bool:
        """Whether something issued at ``cycle`` is shown for itself."""
        place = bisect_right(self._starts, cycle) - 1
        return place >= 0 and cycle <= self._windows[place][1]

    def add(self, lane: str, start: int, end: int, amount: int) -> None:
        entry = self._sums.setdefault((bisect_left(self._starts, start), lane), [start, end, 0, 0])
        entry[0] = min(entry[0], start)
        entry[1] = max(entry[1], end)
        entry[2] += 1
        entry[3] += amount

    def spans(self) -> list[Span]:
        unit = {"DMA wait": "cycles"}
        return [
            span(lane, SpanKind.SUMMARY, start, end, count=count, **{unit.get(lane, "bytes"): amount})
            for (_, lane), (start, end, count, amount) in self._sums.items()
        ]


def _lane_of(source: str, target: str) -> str:
    if "hbm" not in (source, target):
        return "DMA local"
    return "DMA out" if target == "hbm" and source != "hbm" else "DMA in"


def _transfer_spans(record: Record, windows: list[tuple[int, int]]) -> list[Span]:
    """DMA and wait spans: those issued inside a window one by one, those between windows summarised."""
    memory = record.memory
    transfers = [*memory.transfers.first, *memory.transfers.last]
    waits = [*memory.waits.first, *memory.waits.last]
    if len(transfers) <= 2 * KEPT_TRANSFERS and memory.transfers.count == len(transfers):
        windows = [(0, record.cycles)]
    elif not windows:
        windows = [(0, transfers[KEPT_TRANSFERS][0]), (transfers[-KEPT_TRANSFERS][0], record.cycles)]
    gaps = _Gaps(windows)
    spans: list[Span] = []
    for issued, begin, done, size, source, target in transfers:
        lane = _lane_of(source, target)
        if gaps.keeps(issued):
            copied = {"bytes": size, "source": source, "target": target, "service_start_cycles": begin}
            spans.append(span(lane, SpanKind.COPY, issued, done, **copied))
        else:
            gaps.add(lane, issued, done, size)
    for start, end, flag in waits:
        if gaps.keeps(start):
            spans.append(span("DMA wait", SpanKind.WAIT, start, end, **{"for": record.flag_name(flag)}))
        else:
            gaps.add("DMA wait", start, end, end - start)
    spans += gaps.spans()
    for lane, kept in (("DMA in", memory.transfers), ("DMA wait", memory.waits)):
        lost = kept.count - len(kept.first) - len(kept.last)
        if lost:
            # They were issued, in order, between the last one kept before them and the first one after.
            start, end = kept.first[-1][0], max(kept.first[-1][0], kept.last[0][0])
            spans.append(span(lane, SpanKind.SUMMARY, start, end, count=lost))
    return spans
