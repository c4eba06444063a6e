"""One grid step out of the modelled trace: the one that is under way when half of the steps' time has passed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.process.sandbox.folder import read_file
from ratchet.report.material import GridStep, StepBar
from ratchet.view.xplane import new_message

_MOST_BYTES = 256 << 20
_STEPS, _UNITS = "Grid steps", ("MXU", "VALU", "XLU", "EUP", "VLOAD", "VSTORE", "SALU", "stalls")
_COPIES, _WAITS = ("DMA in", "DMA out", "DMA local", "ICI out", "ICI in"), ("DMA wait", "ICI wait")
_DEVICE = "/device:"
MOST_BARS = 400
"""Copies and waits of a step that are shown; the longest."""


@dataclass(frozen=True, kw_only=True)
class _Event:
    lane: str
    name: str
    start_us: float
    end_us: float
    stats: dict[str, Any]


def grid_step(path: Path) -> GridStep | None:
    """The step of the trace at ``path`` (``*.xplane.pb``); None where there is no trace, or no single step in it."""
    space = new_message("XSpace")
    try:
        space.ParseFromString(read_file(path, _MOST_BYTES))
    except Exception:  # not there, or no such message: the reader of protocol buffers raises errors of its own
        return None
    plane = next((plane for plane in space.planes if plane.name.startswith(_DEVICE)), None)
    return None if plane is None else _representative(list(_events(plane)))


def _events(plane: Any) -> Iterator[_Event]:
    names = {number: entry.name for number, entry in plane.stat_metadata.items()}
    for line in plane.lines:
        lane, _, number = line.name.rpartition(" ")
        lane = lane if number.isdigit() else line.name
        for event in line.events:
            stats = {
                names.get(stat.metadata_id, ""): getattr(stat, stat.WhichOneof("value"))
                for stat in event.stats
                if stat.WhichOneof("value")
            }
            start = event.offset_ps / 1e6
            yield _Event(
                lane=lane,
                name=plane.event_metadata[event.metadata_id].name,
                start_us=start,
                end_us=start + event.duration_ps / 1e6,
                stats=stats,
            )


def _representative(events: list[_Event]) -> GridStep | None:
    steps = [event for event in events if event.lane == _STEPS]
    single = [event for event in steps if "step" in event.stats]
    if not single:
        return None
    middle = (min(step.start_us for step in steps) + max(step.end_us for step in steps)) / 2
    step = min(single, key=lambda one: (max(one.start_us - middle, middle - one.end_us, 0.0), one.start_us))
    moving = [event for event in events if event.lane in _COPIES + _WAITS and _overlaps(event, step)]
    longest = sorted(moving, key=lambda event: event.start_us - event.end_us)[:MOST_BARS]
    inside = [event for event in events if event.lane in _UNITS and _same(event, step)]
    return GridStep(
        kernel=step.name.partition(" of ")[2],
        number=int(step.stats["step"]),
        of_steps=sum(int(one.stats.get("steps", 1)) for one in steps),
        start_us=step.start_us,
        end_us=step.end_us,
        bars=tuple(_bar(event) for event in [*inside, *sorted(longest, key=lambda event: event.start_us)]),
    )


def _overlaps(event: _Event, step: _Event) -> bool:
    return "count" not in event.stats and event.start_us < step.end_us and event.end_us > step.start_us


def _same(event: _Event, step: _Event) -> bool:
    return (event.start_us, event.end_us) == (step.start_us, step.end_us)


def _bar(event: _Event) -> StepBar:
    return StepBar(
        lane=event.lane,
        start_us=event.start_us,
        end_us=event.end_us,
        share=float(event.stats.get("busy_share", 1.0)),
        bytes=int(event.stats.get("bytes", 0)),
        detail=str(event.stats.get("for", "")),
    )
