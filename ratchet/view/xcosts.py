"""What the ops of a modelled run are called and cost: its FLOPs, bytes and waits, shared out over its ops. Pure.

A timeline knows these of the whole run. An op's part is what its spans state, else what the lanes show while it runs:
FLOPs go where the matrix units are busy, bytes where DMAs are issued, waits where they are. Shares sum to the totals.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from ratchet.values import Span, SpanKind, Timeline
from ratchet.view.text import clean

_SUMMARISED = "(summarised)"


def label(span: Span) -> str:  # noqa: PLR0911 - one return for each kind of span
    """A few words, cleaned: names of ops and kernels are the author's."""
    name, given = clean(span.name), span.attributes
    match span.kind:
        case SpanKind.NAMED:
            return name
        case SpanKind.RUN:
            return "modelled run"
        case SpanKind.STEP:
            return f"step {given['step']} of {name}"
        case SpanKind.STEPS:
            return f"steps {given['first_step']}–{given['last_step']} of {name} {_SUMMARISED}"
        case SpanKind.BUSY:
            whose = f"{name}: " if name else f"{_SUMMARISED} " if "steps" in given else ""
            return f"{whose}{given['busy_share']:.0%} {'empty bundles' if span.lane == 'stalls' else 'busy'}"
        case SpanKind.COPY:
            return f"{given['source']}→{given['target']} {given['bytes']} B"
        case SpanKind.WAIT:
            return f"wait {span.end_cycles - span.start_cycles} cycles"
        case SpanKind.MESSAGE:
            what = f"{given['bytes']} B" if given["bytes"] else "signal"
            return (
                f"{what} to chip {given['to_chip']}" if "to_chip" in given else f"{what} from chip {given['from_chip']}"
            )
        case SpanKind.SUMMARY:
            return f"{given['count']} more {_SUMMARISED}"
    assert_never(span.kind)


OPS, ASYNC_OPS = "XLA Ops", "Async XLA Ops"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """All executions of one op in one run, on one chip."""

    times: int
    category: str
    """What its spans state, else its opcode."""
    flops: int
    hbm_read_bytes: int
    hbm_write_bytes: int
    wait_cycles: int


def costs(timeline: Timeline, flops: int) -> Mapping[str, Cost]:
    """Costs of the ops by the label of their spans; ``flops`` are those of the whole run on this chip."""
    ops: dict[str, list[Span]] = {}
    for span in timeline.spans:
        if span.lane in (OPS, ASYNC_OPS):
            ops.setdefault(label(span), []).append(span)
    opcodes = {name: _opcode(timeline, name, spans) for name, spans in ops.items()}
    kernels = {name: spans for name, spans in ops.items() if opcodes[name] == "custom-call"} or ops
    running = _running(timeline.spans)

    def shared(
        total: int, attribute: str, lane: str, weight: Callable[[Span], float], idle: Mapping[str, list[Span]]
    ) -> dict[str, int]:
        stated = {
            name: sum(int(span.attributes[attribute]) for span in spans)
            for name, spans in ops.items()
            if all(attribute in span.attributes for span in spans)
        }
        shown = _shown([span for span in timeline.spans if span.lane == lane], weight, running)
        weights = {name: shown.get(name, 0.0) for name in ops if name not in stated}
        if not sum(weights.values()):
            weights = {name: _cycles(spans) for name, spans in idle.items() if name not in stated}
        return stated | apportion(max(0, total - sum(stated.values())), weights)

    products = shared(flops, "flops", "MXU", _busy_cycles, kernels)
    reads = shared(timeline.hbm_read_bytes, "hbm_read_bytes", "DMA in", _bytes, ops)
    writes = shared(timeline.hbm_write_bytes, "hbm_write_bytes", "DMA out", _bytes, ops)
    waits = shared(timeline.dma_wait_cycles, "dma_wait_cycles", "DMA wait", _wait_cycles, kernels)
    return {
        name: Cost(
            times=len(spans),
            category=clean(str(spans[0].attributes.get("category", "")) or opcodes[name]) or "unknown",
            flops=products.get(name, 0),
            hbm_read_bytes=reads.get(name, 0),
            hbm_write_bytes=writes.get(name, 0),
            wait_cycles=waits.get(name, 0),
        )
        for name, spans in ops.items()
    }


def _opcode(timeline: Timeline, name: str, spans: Sequence[Span]) -> str:
    """HLO opcode of the op with these spans, ``""`` where nothing says it."""
    stated = str(spans[0].attributes.get("opcode", ""))
    return next((op.opcode for op in timeline.ops if op.name == name), stated)


def apportion(total: int, weights: Mapping[str, float]) -> dict[str, int]:
    """``total`` in whole parts by weight, which sum to it; nothing where no weight is positive."""
    whole = sum(weights.values())
    if not whole:
        return {}
    exact = {name: total * weight / whole for name, weight in weights.items()}
    parts = {name: math.floor(share) for name, share in exact.items()}
    parts[max(weights, key=lambda name: weights[name])] += total - sum(parts.values())
    return parts


def _cycles(spans: Sequence[Span]) -> int:
    return sum(span.end_cycles - span.start_cycles for span in spans)


def _busy_cycles(span: Span) -> float:
    return float(span.attributes.get("busy_share", 1)) * (span.end_cycles - span.start_cycles)


def _bytes(span: Span) -> float:
    return float(span.attributes.get("bytes", 0))


def _wait_cycles(span: Span) -> float:
    summary = span.kind is SpanKind.SUMMARY
    return float(span.attributes.get("cycles", 0)) if summary else span.end_cycles - span.start_cycles


def _running(spans: Sequence[Span]) -> list[tuple[int, int, str]]:
    """Start, end and label of what runs when, in order and without overlap: the innermost op at each time."""
    pieces: list[tuple[int, int, str]] = []
    around: list[tuple[int, str]] = []
    reached = 0

    def until(end: int) -> None:
        nonlocal reached
        if around and end > reached:
            pieces.append((reached, end, around[-1][1]))
        reached = max(reached, end)

    for span in sorted((s for s in spans if s.lane == OPS), key=lambda s: (s.start_cycles, -s.end_cycles)):
        while around and around[-1][0] <= span.start_cycles:
            until(around[-1][0])
            around.pop()
        until(span.start_cycles)
        around.append((span.end_cycles, label(span)))
    while around:
        until(around[-1][0])
        around.pop()
    return pieces


def _shown(
    spans: Sequence[Span], weight: Callable[[Span], float], running: Sequence[tuple[int, int, str]]
) -> dict[str, float]:
    """The weights of a lane's spans by the op that runs then; a span over several ops is shared by overlap."""
    starts, ends = [piece[0] for piece in running], [piece[1] for piece in running]
    sums: dict[str, float] = {}
    for span in spans:
        low, high = bisect_right(ends, span.start_cycles), bisect_left(starts, span.end_cycles)
        overlaps = [
            (min(end, span.end_cycles) - max(start, span.start_cycles), name) for start, end, name in running[low:high]
        ]
        whole = sum(overlap for overlap, _ in overlaps)
        for overlap, name in overlaps if whole else ():
            sums[name] = sums.get(name, 0.0) + weight(span) * overlap / whole
    return sums
