"""Spans of the modelled timeline: the first, some steady and the last grid steps one by one, the rest summarised.

Nothing is dropped silently: what lies between kept windows becomes one labelled span per lane.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ratchet.schedule.dma import Ends
from ratchet.values import Span

if TYPE_CHECKING:
    from ratchet.schedule.timeline import Counts, Record

WINDOW_STEPS = 32
"""Grid steps kept at the beginning, in the middle and at the end of a kernel."""
DETAIL_STEPS = 512
"""The same when detail is asked for."""
KEPT_OPS = 500
"""Executions of HLO ops kept at each end."""
KEPT_TRANSFERS = 400
"""DMAs and waits kept at each end of a program without a pipeline loop."""


def make_spans(record: Record, counts: Mapping[str, Counts], *, detail: bool, mxu_per_core: int) -> tuple[Span, ...]:
    """All spans, by lane."""
    steps = DETAIL_STEPS if detail else WINDOW_STEPS
    spans: list[Span] = [Span(lane="XLA Modules", name="modelled run", start_cycles=0, end_cycles=record.cycles)]
    spans += _op_spans(record, counts, mxu_per_core)
    windows: list[tuple[int, int]] = []
    for name, kernel in record.steps.kernels.items():
        if not kernel.starts:
            continue
        found, kept = _step_spans(name, kernel.starts, _ends_of(record, name), steps)
        spans += found
        windows += kept
    spans += _transfer_spans(record, sorted(windows))
    return tuple(spans)


def _op_spans(record: Record, counts: Mapping[str, Counts], mxu_per_core: int) -> list[Span]:
    spans = []
    runs = _both_ends(record.op_runs, KEPT_OPS)
    for item in runs:
        unit = record.unit_of_op.get(item.name, item.name)
        attributes: dict[str, int | float | str] = {"opcode": record.opcodes.get(item.name, "runtime")}
        spans.append(
            Span(lane="XLA Ops", name=item.name, start_cycles=item.start, end_cycles=item.end, attributes=attributes)
        )
        inside = counts.get(unit)
        executions = record.units[unit][0].counts[0] if unit in record.units else 0
        if inside is not None and executions and item.end > item.start:
            cycles = item.end - item.start
            busy = {"MXU": inside.mxu_cycles / mxu_per_core / executions / cycles}
            for slot, capacity in (("VALU", 4), ("XLU", 3), ("EUP", 1), ("VLOAD", 3), ("VSTORE", 1)):
                busy[slot] = inside.slots[slot] / capacity / executions / cycles
            for lane, share in busy.items():
                if share >= 0.001:
                    spans.append(
                        Span(
                            lane=lane,
                            name=f"{item.name}: {share:.0%} busy",
                            start_cycles=item.start,
                            end_cycles=item.end,
                            attributes={"busy_share": round(share, 4)},
                        )
                    )
    left_out = record.op_runs.count - len(runs)
    if left_out:
        first, last = runs[KEPT_OPS - 1], runs[-KEPT_OPS]
        spans.append(
            Span(
                lane="XLA Ops",
                name=f"{left_out} executions (summarised)",
                start_cycles=first.end,
                end_cycles=last.start,
                attributes={"executions": left_out},
            )
        )
    return spans


def _both_ends(ends: Ends, keep: int) -> list[Any]:
    items = [*ends.first, *ends.last]
    return items if ends.count <= 2 * keep else [*items[:keep], *items[-keep:]]


def _ends_of(record: Record, unit: str) -> list[tuple[int, int]]:
    """Start and end of every kept execution of a listing."""
    runs = [*record.op_runs.first, *record.op_runs.last]
    return [(run.start, run.end) for run in runs if record.unit_of_op.get(run.name) == unit]


def _step_spans(
    name: str, starts: list[int], runs: list[tuple[int, int]], keep: int
) -> tuple[list[Span], list[tuple[int, int]]]:
    """Step spans of one kernel, and the windows of cycles in which single steps were kept."""
    end_of_last = max((end for _, end in runs), default=starts[-1])
    run_ends = sorted(end for _, end in runs)

    def end_of(index: int) -> int:
        following = starts[index + 1] if index + 1 < len(starts) else end_of_last
        place = bisect_left(run_ends, starts[index])
        return min(following, run_ends[place]) if place < len(run_ends) else following

    count = len(starts)
    if count <= 3 * keep:
        ranges = [(0, count)]
    else:
        middle = count // 2
        ranges = [(0, keep), (middle, middle + keep), (count - keep, count)]
    spans, windows = [], []
    reached = 0
    for low, high in ranges:
        if low > reached:
            spans.append(
                Span(
                    lane="Steps",
                    name=f"steps {reached}–{low - 1} of {name} (summarised)",
                    start_cycles=starts[reached],
                    end_cycles=starts[low],
                    attributes={
                        "steps": low - reached,
                        "mean_cycles": (starts[low] - starts[reached]) / (low - reached),
                    },
                )
            )
        for i in range(low, high):
            spans.append(Span(lane="Steps", name=f"step {i} of {name}", start_cycles=starts[i], end_cycles=end_of(i)))
        windows.append((starts[low], end_of(high - 1)))
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
    spans: list[Span] = []
    gaps: dict[tuple[int, str], list[int]] = {}
    bounds = [0, *(edge for window in windows for edge in window), record.cycles]

    def inside(cycle: int) -> bool:
        return any(low <= cycle <= high for low, high in windows)

    def gap_of(cycle: int) -> int:
        return max(i for i, edge in enumerate(bounds) if edge <= cycle)

    for issued, begin, done, size, source, target in transfers:
        lane = "DMA out" if source == "vmem" and target == "hbm" else "DMA in"
        if inside(issued):
            spans.append(
                Span(
                    lane=lane,
                    name=f"{source}→{target} {size} B",
                    start_cycles=issued,
                    end_cycles=done,
                    attributes={"bytes": size, "service_start_cycles": begin},
                )
            )
        else:
            entry = gaps.setdefault((gap_of(issued), lane), [issued, done, 0, 0])
            entry[1] = max(entry[1], done)
            entry[2] += 1
            entry[3] += size
    for start, end, flag in waits:
        if inside(start):
            spans.append(
                Span(
                    lane="DMA wait",
                    name=f"wait {end - start} cycles",
                    start_cycles=start,
                    end_cycles=end,
                    attributes={"for": record.flag_name(flag)},
                )
            )
        else:
            entry = gaps.setdefault((gap_of(start), "DMA wait"), [start, end, 0, 0])
            entry[1] = max(entry[1], end)
            entry[2] += 1
            entry[3] += end - start
    for (_, lane), (start, end, number, amount) in gaps.items():
        unit = "cycles" if lane == "DMA wait" else "bytes"
        spans.append(
            Span(
                lane=lane,
                name=f"{number} {'waits' if lane == 'DMA wait' else 'copies'} (summarised)",
                start_cycles=start,
                end_cycles=end,
                attributes={"count": number, unit: amount},
            )
        )
    lost = memory.transfers.count - len(transfers)
    if lost:
        spans.append(
            Span(
                lane="DMA in",
                name=f"{lost} more copies, not kept one by one (summarised)",
                start_cycles=memory.transfers.first[-1][2],
                end_cycles=memory.transfers.last[0][0],
                attributes={"count": lost},
            )
        )
    return spans
