"""Spans of the communication between the chips of a slice."""

from __future__ import annotations

from math import ceil

from ratchet.tpu.account.spans import span
from ratchet.tpu.machine.dma import Ends
from ratchet.tpu.machine.links import Message
from ratchet.tpu.machine.record import Record
from ratchet.values import Span, SpanKind

KEPT_SPANS = 400
"""Messages and waits shown one by one at each end of a chip's run."""


def link_spans(record: Record, messages: Ends) -> list[Span]:
    """Lanes of one chip: what it sent, what reached it, and its waits for others."""
    by_lane: dict[str, list[Span]] = {"ICI out": [], "ICI in": [], "ICI wait": []}
    for message in (*messages.first, *messages.last):
        if record.chip_index in (message.source, message.target):
            lane = "ICI out" if message.source == record.chip_index else "ICI in"
            by_lane[lane].append(_message_span(lane, message, record.cycles))
    waits = record.memory.remote_waits
    for start, end, flag in (*waits.first, *waits.last):
        by_lane["ICI wait"].append(span("ICI wait", SpanKind.WAIT, start, end, **{"for": record.flag_name(flag)}))
    spans: list[Span] = []
    for lane, items in by_lane.items():
        left_out = items[KEPT_SPANS:-KEPT_SPANS]
        spans += items[:KEPT_SPANS]
        if left_out:
            start, end = left_out[0].start_cycles, max(one.end_cycles for one in left_out)
            spans.append(span(lane, SpanKind.SUMMARY, start, end, count=len(left_out)))
        spans += items[max(KEPT_SPANS, len(items) - KEPT_SPANS) :]
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
