"""The lanes of a modelled trace: which there are, in which order, and their events.

XProf finds its own lanes (``Steps``, ``XLA Modules``, ``XLA Ops``) by their names, so those stay as they must be and
what says *modelled* goes into what is displayed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ratchet.values import Span, Timeline
from ratchet.view.spans import label
from ratchet.view.text import clean
from ratchet.view.xcosts import ASYNC_OPS, OPS
from ratchet.view.xplane import PlaneBuilder, Value

LABEL = "(modelled)"
MODULES, _GRID = "XLA Modules", "Grid steps"
# The machine's ``Steps`` are grid steps. XProf's ``Steps`` are runs of the program, over which it
# takes its averages, so the grid steps go to a lane of their own.
_RENAMED = {"Steps": _GRID}
_FIRST_LANES = (
    *(OPS, ASYNC_OPS, _GRID, "DMA in", "DMA out", "DMA local", "DMA wait", "ICI out", "ICI in", "ICI wait"),
    *("MXU", "VALU", "XLU", "EUP", "VLOAD", "VSTORE", "SALU", "stalls"),
)


@dataclass(frozen=True)
class LaneWriter:
    """Writes the lanes of one chip's run."""

    plane: PlaneBuilder
    timeline: Timeline

    def picoseconds(self, cycles: int) -> int:
        # Whole picoseconds of each end on its own, so that spans which meet in cycles still meet.
        return cycles * 10**12 // round(self.timeline.clock_hz)

    def line(
        self,
        name: str,
        spans: Sequence[Span],
        types: Mapping[str, int],
        extra: Mapping[str, Mapping[str, Value]] = MappingProxyType({}),
        **stats: Value,
    ) -> None:
        """One lane; ``types`` and ``extra`` give event types and stats by label, where plain ones will not do."""
        line = self.plane.line(name, f"{name} {LABEL}", self.picoseconds(self.timeline.cycles))
        for span in spans:
            name = label(span)
            kind = types.get(name)
            if kind is None:
                kind = self.plane.event_type(name, f"{name} {LABEL}")
            start = self.picoseconds(span.start_cycles)
            event = line.events.add(
                metadata_id=kind, offset_ps=start, duration_ps=self.picoseconds(span.end_cycles) - start
            )
            for key, value in {**stats, **extra.get(name, {}), **span.attributes}.items():
                self.plane.stat(event, clean(key), clean(value) if isinstance(value, str) else value)


def lanes_of(spans: Sequence[Span]) -> list[tuple[str, list[Span]]]:
    """Spans by lane, in the order of display; a lane whose spans overlap becomes several.

    Events of one line may nest but not otherwise overlap, or viewers draw them wrongly.
    """
    lanes: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if not 0 <= span.start_cycles <= span.end_cycles:
            raise ValueError(f"{span.lane} span {label(span)!r} runs from {span.start_cycles} to {span.end_cycles}")
        if span.lane != MODULES:  # the whole run, which is written from the timeline's totals
            lanes[_RENAMED.get(span.lane, span.lane)].append(span)
    order = {lane: place for place, lane in enumerate(_FIRST_LANES)}
    result = []
    for lane in sorted(lanes, key=lambda lane: order.get(lane, len(order))):  # stable: others as they came
        for number, track in enumerate(_tracks(lanes[lane], may_nest=lane == OPS), start=1):
            if number == 1:
                result.append((clean(lane), track))
            else:
                result.append((ASYNC_OPS if lane == OPS else f"{clean(lane)} {number}", track))
    return result


def _tracks(spans: Sequence[Span], *, may_nest: bool) -> list[list[Span]]:
    """Share spans out over as few tracks as it takes for none to overlap on its track."""
    tracks: list[list[Span]] = []
    open_ends: list[list[int]] = []  # per track: ends of the spans that are still open, outermost first
    for span in sorted(spans, key=lambda span: (span.start_cycles, -span.end_cycles)):
        for track, ends in zip(tracks, open_ends, strict=True):
            while ends and ends[-1] <= span.start_cycles:
                ends.pop()
            if not ends or (may_nest and span.end_cycles <= ends[-1]):
                track.append(span)
                ends.append(span.end_cycles)
                break
        else:
            tracks.append([span])
            open_ends.append([span.end_cycles])
    return tracks
