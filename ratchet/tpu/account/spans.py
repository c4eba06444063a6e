"""Spans of the modelled timeline: the first, some steady and the last grid steps one by one, the rest summarised.

Nothing is dropped silently: what is between kept windows becomes one labelled span per lane. No span ends before it
begins or is outside the run, however transfers overlap. The chips of a slice have lanes for what they send each other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from ratchet.tpu.account.costs import Account, Executed
from ratchet.tpu.chips.units import CAPACITY
from ratchet.tpu.machine.dma import Ends
from ratchet.tpu.machine.links import Message
from ratchet.tpu.machine.record import KernelSteps, Record
from ratchet.values import Span, SpanKind

WINDOW_STEPS = 32
"""Grid steps kept at the beginning, in the middle and at the end of a kernel."""
DETAIL_STEPS = 512
"""The same when detail is asked for."""
KEPT_OPS = 500
"""Executions of HLO ops kept at each end."""
KEPT_TRANSFERS = 400
"""DMAs and waits kept at each end of a program without a pipeline loop, and messages and waits of a slice."""

LANES = ("MXU", "VALU", "XLU", "EUP", "VLOAD", "VSTORE", "SALU", "stalls")
"""Lanes of units, and that of empty bundles."""
LEAST_BUSY = 0.001
"""Units below this share get no span."""

Value = int | float | str


def span(lane: str, kind: SpanKind, start: int, end: int, name: str = "", /, **attributes: Value) -> Span:
    """A span from cycle ``start`` to ``end``."""
    return Span(lane=lane, kind=kind, name=name, start_cycles=start, end_cycles=end, attributes=attributes)


def make_spans(record: Record, accounts: Mapping[str, Account], *, detail: bool, mxu_per_core: int) -> tuple[Span, ...]:
    """All spans, by lane."""
    keep = DETAIL_STEPS if detail else WINDOW_STEPS
    spans = [span("XLA Modules", SpanKind.RUN, 0, record.cycles)]
    spans += _op_spans(record)
    windows: list[tuple[int, int]] = []
    for name, kernel in record.steps.kernels.items():
        if not kernel.starts:
            continue
        busy = np.array([_busy(done, mxu_per_core) for _, done in accounts[name].paths])
        own, kept = _step_spans(name, kernel, busy, keep)
        spans += own
        windows += kept
    spans += _whole_ops(record, accounts, mxu_per_core)
    spans += _transfer_spans(record, sorted(windows))
    return (*(_within(one, record.cycles) for one in spans), *_link_spans(record))


def _within(one: Span, cycles: int) -> Span:
    """The span, cut where the run ends: a copy that nobody waits for may be under way then."""
    return one if one.end_cycles <= cycles else replace(one, end_cycles=max(one.start_cycles, cycles))


def _busy(done: Executed, mxu_per_core: int) -> list[float]:
    """For how many cycles each lane is busy."""
    busy = {slot: issued / CAPACITY[slot] for slot, issued in done.issues.items()}
    busy["MXU"] = int(done.mxu.sum()) / mxu_per_core
    busy["XLU"] = int(done.xlu.sum()) / CAPACITY["XLU"]
    busy["stalls"] = done.empty
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
    runs = _both_ends(record.steps.op_runs, KEPT_OPS)
    spans = [
        span("XLA Ops", SpanKind.NAMED, r.start, r.end, r.name, opcode=record.opcodes.get(r.name, "runtime"))
        for r in runs
    ]
    left_out = record.steps.op_runs.count - len(runs)
    if left_out:
        # Runs are kept in the order of their ends, and one may hold others: its start proves nothing.
        first, last = runs[KEPT_OPS - 1].end, runs[-KEPT_OPS].end
        spans.append(span("XLA Ops", SpanKind.SUMMARY, first, max(first, last), count=left_out))
    return spans


def _whole_ops(record: Record, accounts: Mapping[str, Account], mxu_per_core: int) -> list[Span]:
    """Lanes of units for what has no grid steps: one span per execution, with the average over all of them."""
    spans: list[Span] = []
    for item in _both_ends(record.steps.op_runs, KEPT_OPS):
        unit = record.unit_of_op.get(item.name, item.name)
        kernel = record.steps.kernels.get(unit)
        if unit not in accounts or (kernel is not None and kernel.starts):
            continue
        runs = max(1, record.units[unit].translated.counts[0])
        busy = [cycles / runs for cycles in _busy(accounts[unit].whole, mxu_per_core)]
        spans += _lane_spans(busy, item.start, item.end, op=item.name)
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


def _transfer_spans(record: Record, windows: list[tuple[int, int]]) -> list[Span]:
    """DMA and wait spans: those issued inside a window one by one, those between windows summarised."""
    memory = record.memory
    transfers = [*memory.transfers.first, *memory.transfers.last]
    waits = [*memory.waits.first, *memory.waits.last]
    if len(transfers) <= 2 * KEPT_TRANSFERS and memory.transfers.count == len(transfers):
        windows = [(0, record.cycles)]
    elif not windows:
        windows = [(0, transfers[KEPT_TRANSFERS][0]), (transfers[-KEPT_TRANSFERS][0], record.cycles)]
    begins = [start for start, _ in windows]
    gaps: dict[tuple[int, str], list[tuple[int, int, int]]] = {}
    """What was issued between windows, by its gap and lane: from when to when, and how much it is."""

    def is_shown(lane: str, start: int, end: int, amount: int) -> bool:
        """Whether something is in a window; else it is put into its gap."""
        window = bisect_right(begins, start) - 1
        if window >= 0 and start <= windows[window][1]:
            return True
        gaps.setdefault((bisect_left(begins, start), lane), []).append((start, end, amount))
        return False

    spans: list[Span] = []
    for issued, begin, done, size, source, target in transfers:
        lane = "DMA in" if source == "hbm" else "DMA out" if target == "hbm" else "DMA local"
        if is_shown(lane, issued, done, size):
            copied = {"bytes": size, "source": source, "target": target, "service_start_cycles": begin}
            spans.append(span(lane, SpanKind.COPY, issued, done, **copied))
    for start, end, flag in waits:
        if is_shown("DMA wait", start, end, end - start):
            spans.append(span("DMA wait", SpanKind.WAIT, start, end, **{"for": record.addresses.flag_name(flag)}))
    for (_, lane), left_out in gaps.items():
        starts, ends, amounts = zip(*left_out, strict=True)
        together = {"count": len(starts), "cycles" if lane == "DMA wait" else "bytes": sum(amounts)}
        spans.append(span(lane, SpanKind.SUMMARY, min(starts), max(ends), **together))
    return spans + _lost("DMA in", memory.transfers) + _lost("DMA wait", memory.waits)


def _lost(lane: str, kept: Ends) -> list[Span]:
    """One span for those that were not kept: they began between the last one kept before and the first one after."""
    count = kept.count - len(kept.first) - len(kept.last)
    start, end = (kept.first[-1][0], kept.last[0][0]) if count else (0, 0)
    return [span(lane, SpanKind.SUMMARY, start, max(start, end), count=count)] if count else []


def _link_spans(record: Record) -> list[Span]:
    """Lanes of one chip: what it sent, what reached it, and its waits for others."""
    by_lane: dict[str, list[Span]] = {"ICI out": [], "ICI in": [], "ICI wait": []}
    for message in record.messages:
        if record.chip_index in (message.source, message.target):
            lane = "ICI out" if message.source == record.chip_index else "ICI in"
            by_lane[lane].append(_message_span(lane, message, record.cycles))
    waits = record.memory.remote_waits
    for start, end, flag in (*waits.first, *waits.last):
        by_lane["ICI wait"].append(
            span("ICI wait", SpanKind.WAIT, start, end, **{"for": record.addresses.flag_name(flag)})
        )
    spans: list[Span] = []
    for lane, items in by_lane.items():
        left_out = items[KEPT_TRANSFERS:-KEPT_TRANSFERS]
        spans += items[:KEPT_TRANSFERS]
        if left_out:
            start, end = left_out[0].start_cycles, max(one.end_cycles for one in left_out)
            spans.append(span(lane, SpanKind.SUMMARY, start, end, count=len(left_out)))
        spans += items[max(KEPT_TRANSFERS, len(items) - KEPT_TRANSFERS) :]
    return spans


def _message_span(lane: str, message: Message, cycles: int) -> Span:
    other, chip = ("to_chip", message.target) if lane == "ICI out" else ("from_chip", message.source)
    busy = message.left - message.begin
    start, end = (message.begin, message.left) if lane == "ICI out" else (message.arrival - busy, message.arrival)
    return span(
        lane,
        SpanKind.MESSAGE,
        min(int(start), cycles),
        min(ceil(end), cycles),
        bytes=message.size_bytes,
        **{other: chip},
        path="→".join(map(str, message.path)),
        issued_cycles=message.issued,
        arrival_cycles=ceil(message.arrival),
    )
