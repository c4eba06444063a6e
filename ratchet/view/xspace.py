"""A modelled timeline as an XProf trace: what ``xprof --port=8791 ./profile_data`` opens.

Everything that a reader of the trace sees by name says *modelled*: no device was there. XProf finds
its own lanes (``Steps``, ``XLA Modules``, ``XLA Ops``) and the device plane by their names, so those
stay as they must be and the label goes into what is displayed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.chips import CHIPS, Chip
from ratchet.values import Span, Timeline
from ratchet.view.losses import losses_in_words, omissions_in_words
from ratchet.view.spans import label
from ratchet.view.text import clean
from ratchet.view.xplane import PlaneBuilder, Value, new_message

FILE_NAME = "modelled.xplane.pb"
"""XProf takes what is before ``.xplane.pb`` for the host's name and shows it."""

LABEL = "(modelled)"
PROGRAM_ID = 1
_MODULES, _OPS, _ASYNC_OPS, _GRID = "XLA Modules", "XLA Ops", "Async XLA Ops", "Grid steps"
# The machine's ``Steps`` are grid steps. XProf's ``Steps`` are runs of the program, over which it
# takes its averages, so the grid steps go to a lane of their own.
_RENAMED = {"Steps": _GRID}
_FIRST_LANES = (
    *(_OPS, _ASYNC_OPS, _GRID, "DMA in", "DMA out", "DMA local", "DMA wait", "ICI out", "ICI in", "ICI wait"),
    *("MXU", "VALU", "XLU", "EUP", "VLOAD", "VSTORE", "SALU", "stalls"),
)
_READ, _WRITE, _HBM = 1, 2, 1  # XProf's numbers for operation types and memory spaces


def trace_path(profile_data: Path, experiment_id: str) -> Path:
    """Where the trace of one experiment goes, so that one XProf server shows all of them as runs."""
    return profile_data / experiment_id / "plugins" / "profile" / experiment_id / FILE_NAME


def write_xspace(
    timeline: Timeline, path: Path, *, title: str, flops: int = 0, hlo_module: bytes | None = None
) -> Path:
    """Write ``timeline`` to ``path`` as an XSpace, the same bytes for the same timeline; returns ``path``.

    ``title`` names the program in the trace. ``flops`` are the problem's useful FLOPs of one run: they
    are credited to the Pallas kernels. ``hlo_module`` is the compiled module as a serialised
    ``HloModuleProto``; with it, XProf also lists the module. A run on a slice has one plane per chip, and the FLOPs
    are shared out evenly.

    An op's span may carry the attributes ``flops``, ``hbm_read_bytes`` and ``hbm_write_bytes``, all per
    execution, ``category`` and ``opcode``; what the spans leave open of the totals is shared out by cycles.

    Raises ``ValueError`` for a chip that is not in the table or a span that ends before it starts.
    """
    chip = CHIPS.get(timeline.chip)
    if chip is None:
        raise ValueError(f"no such chip: {timeline.chip!r}; known: {', '.join(CHIPS)}")
    title = clean(title)
    space = new_message("XSpace")
    space.hostnames.append("modelled")
    space.warnings.append(f"modelled for TPU {chip.name} with {clean(timeline.compiler)}; not measured on a device")
    space.warnings.extend(f"not modelled: {clean(what)}" for what in omissions_in_words(timeline))

    module = f"{title}({PROGRAM_ID})"
    chips = timeline.chips or (timeline,)
    for one in chips:
        _device_plane(space, one, chip, title, module, flops // len(chips))

    if hlo_module is not None:
        metadata = PlaneBuilder(space, "/host:metadata")
        proto = new_message("HloProto")
        proto.hlo_module = hlo_module
        metadata.event_type(module, stats={"Hlo Proto": proto.SerializeToString()})

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(space.SerializeToString(deterministic=True))
    return path


def _device_plane(space: Any, timeline: Timeline, chip: Chip, title: str, module: str, flops: int) -> None:
    """The plane of one chip, with all its lanes."""
    plane = PlaneBuilder(space, f"/device:TPU:{timeline.chip_index}")
    plane.stat(plane.plane, "device_type_string", f"TPU {chip.name} {LABEL}")
    plane.stat(plane.plane, "peak_teraflops_per_second", chip.peak_bf16_flops / 1e12)
    plane.stat(plane.plane, "peak_hbm_bw_gigabytes_per_second", chip.hbm_bytes_per_s / 1e9)

    run = Span(
        lane="", name=f"{title} {LABEL}", start_cycles=0, end_cycles=timeline.cycles, attributes=_totals(timeline)
    )
    writer = _Writer(plane, timeline)
    writer.line("Steps", [run], {run.name: plane.event_type("0", f"modelled run of {title}")}, group_id=0)
    writer.line(_MODULES, [run], {run.name: plane.event_type(module, run.name)}, group_id=0, program_id=PROGRAM_ID)
    ops = _op_types(plane, timeline, flops)
    for lane, spans in _lanes(timeline.spans):
        if lane in (_OPS, _ASYNC_OPS):
            writer.line(lane, spans, ops, group_id=0)
        else:
            writer.line(lane, spans, {})


def _totals(timeline: Timeline) -> dict[str, int | float | str]:
    """What a click on the whole run shows."""
    return {
        "evaluator": "modelled, not measured",
        "compiler": clean(timeline.compiler),
        "modelled_ms": timeline.latency_ms,
        "cycles": timeline.cycles,
        "dma_wait_cycles": timeline.dma_wait_cycles,
        "ici_wait_cycles": timeline.ici_wait_cycles,
        "ici_bytes": timeline.ici_bytes,
        "grid_steps": timeline.grid_steps,
        "hbm_read_bytes": timeline.hbm_read_bytes,
        "hbm_write_bytes": timeline.hbm_write_bytes,
        "losses": clean("; ".join(losses_in_words(timeline))),
        "not_modelled": clean("; ".join(omissions_in_words(timeline))),
    }


@dataclass(frozen=True)
class _Writer:
    plane: PlaneBuilder
    timeline: Timeline

    def picoseconds(self, cycles: int) -> int:
        # Whole picoseconds of each end on its own, so that spans which meet in cycles still meet.
        return cycles * 10**12 // round(self.timeline.clock_hz)

    def line(self, name: str, spans: Sequence[Span], types: Mapping[str, int], **stats: Value) -> None:
        """One lane; ``types`` gives the event types by label, where a plain one will not do."""
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
            for key, value in {**stats, **span.attributes}.items():
                self.plane.stat(event, clean(key), clean(value) if isinstance(value, str) else value)


def _lanes(spans: Sequence[Span]) -> list[tuple[str, list[Span]]]:
    """Spans by lane, in the order of display; a lane whose spans overlap becomes several.

    Events of one line may nest but not otherwise overlap, or viewers draw them wrongly.
    """
    lanes: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if not 0 <= span.start_cycles <= span.end_cycles:
            raise ValueError(f"{span.lane} span {label(span)!r} runs from {span.start_cycles} to {span.end_cycles}")
        if span.lane != _MODULES:  # the whole run, which is written from the timeline's totals
            lanes[_RENAMED.get(span.lane, span.lane)].append(span)
    order = {lane: place for place, lane in enumerate(_FIRST_LANES)}
    result = []
    for lane in sorted(lanes, key=lambda lane: order.get(lane, len(order))):  # stable: others as they came
        for number, track in enumerate(_tracks(lanes[lane], may_nest=lane == _OPS), start=1):
            if number == 1:
                result.append((clean(lane), track))
            else:
                result.append((_ASYNC_OPS if lane == _OPS else f"{clean(lane)} {number}", track))
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


def _op_types(plane: PlaneBuilder, timeline: Timeline, flops: int) -> dict[str, int]:
    """Event types of the HLO ops by name, with the costs from which XProf draws roofline and op profile."""
    spans: dict[str, list[Span]] = defaultdict(list)
    for span in timeline.spans:
        if span.lane in (_OPS, _ASYNC_OPS):
            spans[label(span)].append(span)
    opcodes = {name: str(runs[0].attributes.get("opcode", "")) for name, runs in spans.items()}
    opcodes |= {op.name: op.opcode for op in timeline.ops}
    kernels = {name for name in spans if opcodes.get(name) == "custom-call"} or set(spans)
    per_run = {
        "flops": _share_out(flops, "flops", {name: spans[name] for name in spans if name in kernels}),
        "hbm_read_bytes": _share_out(timeline.hbm_read_bytes, "hbm_read_bytes", spans),
        "hbm_write_bytes": _share_out(timeline.hbm_write_bytes, "hbm_write_bytes", spans),
    }
    types = {}
    for symbol, (name, runs) in enumerate(spans.items(), start=1):
        each = {what: shares.get(name, 0) // len(runs) for what, shares in per_run.items()}
        category = str(runs[0].attributes.get("category") or opcodes[name] or "unknown")
        access = new_message("MemoryAccessBreakdown")
        for kind, what in ((_READ, "hbm_read_bytes"), (_WRITE, "hbm_write_bytes")):
            access.memory_accessed.add(operation_type=kind, memory_space=_HBM, bytes_accessed=each[what])
        stats: dict[str, Value] = {
            "program_id": PROGRAM_ID,
            "symbol_id": symbol,
            "hlo_category": f"{clean(category)} {LABEL}",
            "flops": each["flops"],
            "bytes_accessed": each["hbm_read_bytes"] + each["hbm_write_bytes"],
            "memory_access_breakdown": access.SerializeToString(),
        }
        types[name] = plane.event_type(clean(name), f"{clean(name)} {LABEL}", stats)
    return types


def _share_out(total: int, attribute: str, ops: Mapping[str, Sequence[Span]]) -> dict[str, int]:
    """What each op costs per run: as its spans state, else its share by cycles of what the others leave."""
    stated = {
        name: sum(int(span.attributes[attribute]) for span in spans)
        for name, spans in ops.items()
        if all(attribute in span.attributes for span in spans)
    }
    cycles = {
        name: sum(span.end_cycles - span.start_cycles for span in spans)
        for name, spans in ops.items()
        if name not in stated
    }
    left, whole = max(0, total - sum(stated.values())), max(1, sum(cycles.values()))
    return stated | {name: left * mine // whole for name, mine in cycles.items()}
