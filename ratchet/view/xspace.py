"""A modelled timeline as an XProf trace: what ``xprof --port=8791 ./profile_data`` opens.

Everything that a reader of the trace sees by name says *modelled*: no device was there. XProf finds
its own lanes (``Steps``, ``XLA Modules``, ``XLA Ops``) and the device plane by their names, so those
stay as they must be and the label goes into what is displayed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.tpu.chips import CHIPS, Chip
from ratchet.values import Span, Timeline
from ratchet.view.losses import losses_in_words, omissions_in_words
from ratchet.view.spans import label
from ratchet.view.text import clean
from ratchet.view.xcosts import ASYNC_OPS, OPS, Cost, costs, opcode
from ratchet.view.xlanes import LABEL, MODULES, LaneWriter, lanes_of
from ratchet.view.xmemory import HbmBuffer, hlo_proto, module_name
from ratchet.view.xplane import PlaneBuilder, Value, new_message

FILE_NAME = "modelled.xplane.pb"
"""XProf takes what is before ``.xplane.pb`` for the host's name and shows it."""

UNUSED = (
    "`Compared to Program's Optimal …` is not computed by XProf, which shows 0.0 % for any trace: see roofline_model"
)
"""Of XProf 2.24: its overview passes no limits of the chip to what would compute these two lines."""

PROGRAM_ID = 1
_CACHES = ("ALL_HOSTS.*.pb", f"{module_name('')}*({PROGRAM_ID}).hlo_proto.pb", "modelled.SSTABLE*")
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
    space.warnings.append(UNUSED)
    space.warnings.extend(f"not modelled: {clean(what)}" for what in omissions_in_words(timeline))

    module = f"{module_name(title)}({PROGRAM_ID})"
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

    path.parent.mkdir(parents=True, exist_ok=True)
    for stale in (file for pattern in _CACHES for file in path.parent.glob(pattern)):
        stale.unlink()
    path.write_bytes(space.SerializeToString(deterministic=True))
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
    plane.stat(plane.plane, "device_type_string", f"TPU {run.chip.name} {LABEL}")
    plane.stat(plane.plane, "peak_teraflops_per_second", run.peak_flops / 1e12)
    plane.stat(plane.plane, "peak_hbm_bw_gigabytes_per_second", run.chip.hbm_bytes_per_s / 1e9)

    whole = Span(
        lane="", name=f"{title} {LABEL}", start_cycles=0, end_cycles=timeline.cycles, attributes=_totals(timeline)
    )
    writer = LaneWriter(plane, timeline)
    writer.line("Steps", [whole], {whole.name: plane.event_type("0", f"modelled run of {title}")}, group_id=0)
    writer.line(MODULES, [whole], {whole.name: plane.event_type(module, whole.name)}, group_id=0, program_id=PROGRAM_ID)
    ops = _ops(run)
    types = {name: _op_type(plane, name, symbol, op) for symbol, (name, op) in enumerate(ops.items(), start=1)}
    stalls = {
        name: {"dma_stall_duration_ps": writer.picoseconds(op.cost.wait_cycles) // op.times} for name, op in ops.items()
    }
    for lane, spans in lanes_of(timeline.spans):
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


@dataclass(frozen=True, kw_only=True)
class _Op:
    """What one op does in a run."""

    times: int
    cost: Cost
    """All times together."""
    category: str


def _ops(run: _Run) -> dict[str, _Op]:
    """The ops of a run by the label of their spans."""
    spans: dict[str, list[Span]] = defaultdict(list)
    for span in run.timeline.spans:
        if span.lane in (OPS, ASYNC_OPS):
            spans[label(span)].append(span)
    ops = {}
    for name, cost in costs(run.timeline, run.flops).items():
        stated = str(spans[name][0].attributes.get("category", "")) or opcode(run.timeline, name, spans[name])
        ops[name] = _Op(times=len(spans[name]), cost=cost, category=clean(stated) or "unknown")
    return ops


def _op_type(plane: PlaneBuilder, name: str, symbol: int, op: _Op) -> int:
    """Event type of one op, with the costs of one execution: XProf draws roofline and op profile from them."""
    read, written = op.cost.hbm_read_bytes // op.times, op.cost.hbm_write_bytes // op.times
    access = new_message("MemoryAccessBreakdown")
    for kind, moved in ((_READ, read), (_WRITE, written)):
        access.memory_accessed.add(operation_type=kind, memory_space=_HBM, bytes_accessed=moved)
    stats: dict[str, Value] = {
        "program_id": PROGRAM_ID,
        "symbol_id": symbol,
        "hlo_category": f"{op.category} {LABEL}",
        "flops": op.cost.flops // op.times,
        "bytes_accessed": read + written,
        "memory_access_breakdown": access.SerializeToString(),
    }
    return plane.event_type(clean(name), f"{clean(name)} {LABEL}", stats)
