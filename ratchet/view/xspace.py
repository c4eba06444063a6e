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
from types import MappingProxyType
from typing import Any

from ratchet.process import paths
from ratchet.tpu.chips import CHIPS, Chip
from ratchet.values import Span, Timeline
from ratchet.view.losses import losses_in_words, omissions_in_words
from ratchet.view.text import clean
from ratchet.view.xcosts import ASYNC_OPS, OPS, Cost, costs, label
from ratchet.view.xplane import HbmBuffer, PlaneBuilder, Value, hlo_proto, module_name, new_message

_LABEL = "(modelled)"
_MODULES, _GRID = "XLA Modules", "Grid steps"
# The machine's ``Steps`` are grid steps. XProf's ``Steps`` are runs of the program, over which it
# takes its averages, so the grid steps go to a lane of their own.
_RENAMED = {"Steps": _GRID}
_FIRST_LANES = (
    *(OPS, ASYNC_OPS, _GRID, "DMA in", "DMA out", "DMA local", "DMA wait", "ICI out", "ICI in", "ICI wait"),
    *("MXU", "VALU", "XLU", "EUP", "VLOAD", "VSTORE", "SALU", "stalls"),
)
FILE_NAME = "modelled.xplane.pb"
"""XProf takes what is before ``.xplane.pb`` for the host's name and shows it."""

_UNUSED = (
    "`Compared to Program's Optimal …` is not computed by XProf, which shows 0.0 % for any trace: see roofline_model"
)
"""Of XProf 2.24: its overview passes no limits of the chip to what would compute these two lines."""

_PROGRAM_ID = 1
_CACHES = ("ALL_HOSTS.*.pb", f"{module_name('')}*({_PROGRAM_ID}).hlo_proto.pb", "modelled.SSTABLE*")
"""What XProf keeps of an earlier trace beside it, and would show instead of a new one of the same name."""
_READ, _WRITE, _HBM = 1, 2, 1  # XProf's numbers for operation types and memory spaces


def trace_path(profile_data: Path, experiment_id: str) -> Path:
    """Where the trace of one experiment goes, so that one XProf server shows all of them as runs."""
    return profile_data / experiment_id / "plugins" / "profile" / experiment_id / FILE_NAME


def write_xspace(
    timeline: Timeline,
    path: Path,
    *,
    title: str,
    flops: int | None = None,
    peak_flops: float | None = None,
    hlo_module: bytes | None = None,
    buffers: Sequence[HbmBuffer] = (),
) -> Path:
    """Write ``timeline`` to ``path`` as an XSpace, the same bytes for the same timeline; returns ``path``.

    A run on a slice has one plane per chip, and the FLOPs are shared out evenly. An op's span may carry the attributes
    ``flops``, ``hbm_read_bytes``, ``hbm_write_bytes`` and ``dma_wait_cycles``, all per execution, ``category`` and
    ``opcode``; what the spans leave open of the totals is shared out (:mod:`ratchet.view.xcosts`).

    Args:
      timeline: the modelled run.
      path: the file.
      title: names the program in the trace.
      flops: useful FLOPs of one run, all chips together; None where nothing says what is useful: then those that the
        matrix units compute.
      peak_flops: FLOPs per second of one chip that they are compared with; None for its bfloat16 peak.
      hlo_module: the compiled module as a serialised ``HloModuleProto``; with it, XProf also lists the module.
      buffers: its arrays in HBM, for the memory viewer.

    Raises:
      ValueError: for a chip that is not in the table, or a span that ends before it starts.
    """
    chip = CHIPS.get(timeline.chip)
    if chip is None:
        raise ValueError(f"no such chip: {timeline.chip!r}; known: {', '.join(CHIPS)}")
    title = clean(title)
    space = new_message("XSpace")
    space.hostnames.append("modelled")
    space.warnings.append(f"modelled for TPU {chip.name} with {clean(timeline.compiler)}; not measured on a device")
    space.warnings.append(_UNUSED)
    space.warnings.extend(f"not modelled: {clean(what)}" for what in omissions_in_words(timeline))

    module = f"{module_name(title)}({_PROGRAM_ID})"
    chips = timeline.chips or (timeline,)
    runs = []
    for one in chips:
        computed = round(_mxu_share(one) * one.cycles / one.clock_hz * chip.peak_bf16_flops)
        run = _Run(
            timeline=one,
            chip=chip,
            title=title,
            flops=computed if flops is None else flops // len(chips),
            peak_flops=peak_flops or chip.peak_bf16_flops,
        )
        _device_plane(space, run, module)
        runs.append(run)
    _host_plane(space, runs)

    if hlo_module is not None:
        metadata = PlaneBuilder(space, "/host:metadata")
        metadata.event_type(module, stats={"Hlo Proto": hlo_proto(hlo_module, title, buffers)})

    paths.make_folder(path.parent)
    for stale in paths.files(path.parent):
        if any(stale.match(pattern) for pattern in _CACHES):
            paths.unlink(stale)
    paths.write(path, space.SerializeToString(deterministic=True))
    return path


@dataclass(frozen=True, kw_only=True)
class _Run:
    """The run of one chip, and what it is compared with."""

    timeline: Timeline
    chip: Chip
    title: str
    flops: int
    peak_flops: float

    @property
    def seconds(self) -> float:
        return self.timeline.cycles / self.timeline.clock_hz


def _mxu_share(timeline: Timeline) -> float:
    return timeline.mxu_busy_cycles / timeline.cycles if timeline.cycles else 0.0


def _device_plane(space: Any, run: _Run, module: str) -> None:
    """The plane of one chip, with all its lanes."""
    timeline, title = run.timeline, run.title
    plane = PlaneBuilder(space, f"/device:TPU:{timeline.chip_index}")
    plane.stat(plane.plane, "device_type_string", f"TPU {run.chip.name} {_LABEL}")
    plane.stat(plane.plane, "peak_teraflops_per_second", run.peak_flops / 1e12)
    plane.stat(plane.plane, "peak_hbm_bw_gigabytes_per_second", run.chip.hbm_bytes_per_s / 1e9)

    whole = Span(
        lane="", name=f"{title} {_LABEL}", start_cycles=0, end_cycles=timeline.cycles, attributes=_totals(timeline)
    )
    writer = _LaneWriter(plane, timeline)
    writer.line("Steps", [whole], {whole.name: plane.event_type("0", f"modelled run of {title}")}, group_id=0)
    writer.line(
        _MODULES, [whole], {whole.name: plane.event_type(module, whole.name)}, group_id=0, program_id=_PROGRAM_ID
    )
    ops = costs(timeline, run.flops)
    types = {name: _op_type(plane, name, symbol, op) for symbol, (name, op) in enumerate(ops.items(), start=1)}
    stalls = {
        name: {"dma_stall_duration_ps": writer.picoseconds(op.wait_cycles) // op.times} for name, op in ops.items()
    }
    for lane, spans in _lanes(timeline.spans):
        if lane in (OPS, ASYNC_OPS):
            writer.line(lane, spans, types, stalls, group_id=0)
        else:
            writer.line(lane, spans, {})


def _host_plane(space: Any, runs: Sequence[_Run]) -> None:
    """What counters of the device say of a real run, for XProf's overview: the mean over the chips.

    Of what the matrix units do, the useful part counts: what the verdict counts as FLOPs.
    """
    plane = PlaneBuilder(space, "/host:CPU")
    matrix_units = [min(run.flops / run.peak_flops / run.seconds, _mxu_share(run.timeline)) for run in runs]
    moved = [run.timeline.hbm_read_bytes + run.timeline.hbm_write_bytes for run in runs]
    hbm = [size / run.chip.hbm_bytes_per_s / run.seconds for run, size in zip(runs, moved, strict=True)]
    plane.stat(plane.plane, "matrix_unit_utilization_percent", 100 * sum(matrix_units) / len(runs))
    plane.stat(plane.plane, "hbm_utilization_percent", 100 * sum(hbm) / len(runs))


def _totals(timeline: Timeline) -> dict[str, int | float | str]:
    """What a click on the whole run shows."""
    return {
        "evaluator": "modelled, not measured",
        "compiler": clean(timeline.compiler),
        "modelled_ms": timeline.latency_ms,
        "cycles": timeline.cycles,
        "dma_wait_cycles": timeline.dma_wait_cycles,
        "mxu_busy_percent": 100 * _mxu_share(timeline),
        "ici_wait_cycles": timeline.ici_wait_cycles,
        "ici_bytes": timeline.ici_bytes,
        "grid_steps": timeline.grid_steps,
        "hbm_read_bytes": timeline.hbm_read_bytes,
        "hbm_write_bytes": timeline.hbm_write_bytes,
        "losses": clean("; ".join(losses_in_words(timeline))),
        "not_modelled": clean("; ".join(omissions_in_words(timeline))),
    }


def _op_type(plane: PlaneBuilder, name: str, symbol: int, op: Cost) -> int:
    """Event type of one op, with the costs of one execution: XProf draws roofline and op profile from them."""
    read, written = op.hbm_read_bytes // op.times, op.hbm_write_bytes // op.times
    access = new_message("MemoryAccessBreakdown")
    for kind, moved in ((_READ, read), (_WRITE, written)):
        access.memory_accessed.add(operation_type=kind, memory_space=_HBM, bytes_accessed=moved)
    stats: dict[str, Value] = {
        "program_id": _PROGRAM_ID,
        "symbol_id": symbol,
        "hlo_category": f"{op.category} {_LABEL}",
        "flops": op.flops // op.times,
        "bytes_accessed": read + written,
        "memory_access_breakdown": access.SerializeToString(),
    }
    return plane.event_type(clean(name), f"{clean(name)} {_LABEL}", stats)


# --- lanes ---


@dataclass(frozen=True)
class _LaneWriter:
    """Writes the lanes of one chip's run."""

    plane: PlaneBuilder
    timeline: Timeline

    def picoseconds(self, cycles: int) -> int:
        # Whole picoseconds of each end on its own, so that spans that touch in cycles still touch.
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
        line = self.plane.line(name, f"{name} {_LABEL}", self.picoseconds(self.timeline.cycles))
        for span in spans:
            name = label(span)
            kind = types.get(name)
            if kind is None:
                kind = self.plane.event_type(name, f"{name} {_LABEL}")
            start = self.picoseconds(span.start_cycles)
            event = line.events.add(
                metadata_id=kind, offset_ps=start, duration_ps=self.picoseconds(span.end_cycles) - start
            )
            for key, value in {**stats, **extra.get(name, {}), **span.attributes}.items():
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
