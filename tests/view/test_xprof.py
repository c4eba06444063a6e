"""XProf's tools hold the numbers of the verdict: its own converter reads the trace that the judge's wiring writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from xprof.convert.raw_to_tool_data import xspace_to_tool_names

from ratchet.exam.judge import roofline
from ratchet.exam.judge.request import Request
from ratchet.exam.problem import problem as problems
from ratchet.tpu.chips import V5E
from ratchet.values import ArraySpec, Span, Verdict
from ratchet.view.xcosts import costs
from ratchet.view.xplane import BufferKind, HbmBuffer, new_message
from ratchet.view.xspace import trace_path, write_xspace
from ratchet.wiring import hbm_buffers, write_views
from tests.imports import HERE
from tests.tpu.machine.golden_dumps import COMPILERS, model, unpack

from .timelines import timeline, verdict
from .xprof import read, rows

FLOPS = 300_000_000
HBM_BYTES = 3 << 20
MODULE = "modelled_causal_flash"


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Verdict, Path]:
    """A verdict of a recorded program, and the trace that is written beside its evidence."""
    folder = tmp_path_factory.mktemp("judged")
    dumps = unpack(COMPILERS[0], "flash", folder / "dumps")
    (folder / "kernel.py").write_text("# a kernel\n")
    frozen = problems.read(HERE / "kernel.py.lock.json")
    array = ArraySpec(shape=(512, 128), dtype="float32")
    problem = replace(frozen, flops=FLOPS, inputs=(array,) * 3, outputs=(array,), work={})
    (folder / "kernel.py.lock.json").write_bytes(problems.encode(problem))
    run = model(dumps)
    score, _ = roofline.step(problem, run, V5E)
    footprint = replace(verdict().footprint, hbm_bytes=HBM_BYTES)
    result = verdict(timeline=run, score=score, footprint=footprint)
    request = Request(
        kernel=folder / "kernel.py",
        root=folder,
        kernel_rel="kernel.py",
        conditions=result.conditions,
        evidence=dumps,
    )
    trace = trace_path(folder / "profile_data", "e1")
    write_views(result, request, trace)
    return result, trace


def memory(path: Path, module: str, space: int) -> dict:
    xspace_to_tool_names([str(path)])  # writes the modules beside the trace, as the server does when a run is chosen
    return read(path, "memory_viewer", module_name=module, memory_space=str(space), host="modelled")


def hbm_share(result: Verdict) -> float:
    run = result.timeline
    moved = run.hbm_read_bytes + run.hbm_write_bytes
    return moved / (run.latency_ms / 1e3) / V5E.hbm_bytes_per_s


def test_the_overview_shows_the_verdicts_utilisation_and_says_that_it_is_modelled(judged: tuple[Verdict, Path]) -> None:
    result, trace = judged
    assert result.score.regime == "compute-bound"
    tables = read(trace, "overview_page")
    shown = tables[0]["p"]
    assert shown["mxu_utilization_percent"] == f"{result.score.util_pct:.1f}%"
    assert shown["hbm_utilization_percent"] == f"{100 * hbm_share(result):.1f}%"
    assert tables[1]["p"]["steptime_ms_average"] == f"{result.score.latency_ms:.2f}"
    assert tables[2]["p"]["device_type"] == "TPU v5e (modelled)"
    warnings = [row["message"] for row in rows(tables[-1])]
    assert any(text.startswith("modelled for TPU v5e with") and "not measured" in text for text in warnings)
    assert any("Compared to Program's Optimal" in text for text in warnings)
    assert shown["flop_rate_utilization_relative_to_roofline"] == "0.0%"  # once XProf can, drop the warning


def test_without_its_counters_the_overview_would_show_nothing(judged: tuple[Verdict, Path], tmp_path: Path) -> None:
    space = new_message("XSpace")
    space.ParseFromString(judged[1].read_bytes())
    for plane in space.planes:
        if plane.name == "/host:CPU":
            plane.ClearField("stats")
    (tmp_path / "t.xplane.pb").write_bytes(space.SerializeToString())
    shown = read(tmp_path / "t.xplane.pb", "overview_page")[0]["p"]
    assert (shown["mxu_utilization_percent"], shown["hbm_utilization_percent"]) == ("0.0%", "0.0%")


def test_the_roofline_is_that_of_the_verdict(judged: tuple[Verdict, Path]) -> None:
    result, trace = judged
    score, run = result.score, result.timeline
    table = read(trace, "roofline_model")[0]
    assert table["p"]["device_type"] == "TPU v5e (modelled)"
    assert float(table["p"]["peak_flop_rate"]) == pytest.approx(V5E.peak_bf16_flops / 1e9)
    assert float(table["p"]["hbm_ridge_point"]) == pytest.approx(V5E.ridge_flops_per_byte, rel=1e-5)
    program = rows(table)[0]
    assert program["compute_efficiency"] == pytest.approx(score.util_pct / 100, rel=1e-6)
    assert program["measured_flop_rate"] == pytest.approx(score.tflops * 1e3, rel=1e-6)
    assert program["max_mem_bw_utilization"] == pytest.approx(hbm_share(result), rel=1e-6)
    assert program["total_time"] == pytest.approx(score.latency_ms * 1e3, rel=1e-6)
    moved = run.hbm_read_bytes + run.hbm_write_bytes
    assert program["hbm_operational_intensity"] == pytest.approx(FLOPS / moved, rel=1e-9)


def test_op_profile_and_hlo_stats_credit_the_kernel(judged: tuple[Verdict, Path]) -> None:
    result, trace = judged
    run = result.timeline
    program = read(trace, "op_profile")["byProgram"]["children"][0]
    assert program["name"] == f"{MODULE}(1)"
    assert program["metrics"]["rawFlops"] == FLOPS
    assert program["metrics"]["flops"] == pytest.approx(result.score.util_pct / 100, rel=0.01)  # XProf leaves idle out
    assert program["metrics"]["rawBytesAccessedArray"][0] == pytest.approx(run.hbm_read_bytes + run.hbm_write_bytes)
    assert program["metrics"]["bandwidthUtils"][0] == pytest.approx(hbm_share(result), rel=0.01)
    kernel = rows(read(trace, "hlo_stats"))[0]
    cycles = run.ops[0].cycles
    assert (kernel["hlo_op_name"], kernel["category"]) == ("_flash.1", "custom-call (modelled)")
    assert kernel["total_time"] == pytest.approx(cycles / run.clock_hz * 1e6, rel=1e-4)
    assert kernel["model_flop_rate"] == pytest.approx(FLOPS / (cycles / run.clock_hz) / 1e9, rel=1e-4)
    assert kernel["dma_stall_percent"] == pytest.approx(run.dma_wait_cycles / cycles, rel=1e-4)


def test_the_memory_viewer_shows_the_footprint(judged: tuple[Verdict, Path]) -> None:
    hbm = memory(judged[1], f"{MODULE}(1)", 0)
    assert hbm["peakHeapMib"] * (1 << 20) == HBM_BYTES
    assert hbm["totalBufferAllocationMib"] * (1 << 20) == HBM_BYTES
    arguments = [one for one in hbm["maxHeap"] if one["groupName"] == "Parameter"]
    assert sum(one["logicalBufferSizeMib"] for one in arguments) == hbm["entryComputationParametersMib"] > 0
    vmem = memory(judged[1], f"{MODULE}(1)", 1)
    assert vmem["maxScopedVmemInstructionName"] == "_flash.1"
    assert vmem["maxScopedVmemAllocationMib"] > 0


def test_buffers_sum_to_what_the_compiler_says(tmp_path: Path) -> None:
    data = (unpack(COMPILERS[0], "flash", tmp_path) / "optimized.hlo.pb").read_bytes()
    buffers = hbm_buffers(data, HBM_BYTES)
    assert sum(buffer.size_bytes for buffer in buffers) == HBM_BYTES
    assert [buffer.kind for buffer in buffers][-2:] == [BufferKind.RESULT, BufferKind.TEMPORARY]
    assert [buffer.number for buffer in buffers if buffer.kind is BufferKind.ARGUMENT] == [0, 1, 2]
    known = sum(buffer.size_bytes for buffer in buffers[:-1])
    assert hbm_buffers(data, known) == buffers[:-1]


def test_a_title_cannot_name_a_file_elsewhere(tmp_path: Path) -> None:
    from jaxlib import _hlo

    text = "HloModule a\n\nENTRY main {\n  ROOT x = f32[1024]{0} parameter(0)\n}\n"
    module = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    argument = HbmBuffer(kind=BufferKind.ARGUMENT, size_bytes=4096, instruction=0)
    path = tmp_path / "in" / "t.xplane.pb"
    write_xspace(timeline(), path, title="../../x\u202ey <b>", hlo_module=module, buffers=(argument,))
    xspace_to_tool_names([str(path)])
    assert {file.name for file in tmp_path.iterdir()} == {"in"}
    assert "modelled_______xy__b_(1).hlo_proto.pb" in {file.name for file in path.parent.iterdir()}


def test_a_new_trace_is_shown_instead_of_what_xprof_kept_of_the_old(tmp_path: Path) -> None:
    path = trace_path(tmp_path, "explained")
    for flops in (FLOPS, FLOPS // 3):
        write_xspace(timeline(), path, title="t", flops=flops)
        kept = read(path, "op_profile", use_saved_result=True)  # as the server asks, with what it kept
        assert kept["byProgram"]["metrics"]["rawFlops"] == flops


BUSY = timeline().mxu_busy_cycles / timeline().cycles
OF_INT8 = FLOPS / (timeline().cycles / timeline().clock_hz) / V5E.peak_int8_ops


@pytest.mark.parametrize(
    ("run", "given", "shown", "efficiency"),
    [
        (timeline(), {"flops": FLOPS, "peak_flops": V5E.peak_int8_ops}, min(OF_INT8, BUSY), OF_INT8),
        (timeline(), {}, BUSY, BUSY),  # without a problem the busy matrix units count
        (replace(timeline(), mxu_busy_cycles=0), {"flops": FLOPS}, 0.0, None),  # computed by the vector units
    ],
    ids=["another peak", "no problem", "idle matrix units"],
)
def test_the_share_of_the_peak(tmp_path, run, given, shown, efficiency):
    path = write_xspace(run, tmp_path / "t.xplane.pb", title="t", **given)
    table = read(path, "roofline_model")[0]
    assert float(table["p"]["peak_flop_rate"]) == pytest.approx(given.get("peak_flops", V5E.peak_bf16_flops) / 1e9)
    assert read(path, "overview_page")[0]["p"]["mxu_utilization_percent"] == f"{100 * shown:.1f}%"
    found = rows(table)[0]["compute_efficiency"]
    assert found == pytest.approx(efficiency, rel=1e-4) if efficiency else found > 0


def test_a_slice_shows_the_mean_of_its_chips(tmp_path: Path) -> None:
    plain = timeline()
    chips = tuple(replace(plain, chip_index=i, hbm_read_bytes=i << 20, hbm_write_bytes=0) for i in range(4))
    path = write_xspace(replace(plain, chips=chips), tmp_path / "t.xplane.pb", title="t", flops=4 * 100_000)
    shown = read(path, "overview_page")[0]["p"]
    seconds = plain.cycles / plain.clock_hz
    assert shown["mxu_utilization_percent"] == f"{100 * 100_000 / seconds / V5E.peak_bf16_flops:.1f}%"
    assert shown["hbm_utilization_percent"] == f"{100 * 1.5 * (1 << 20) / seconds / V5E.hbm_bytes_per_s:.1f}%"


def span(lane: str, name: str, start: int, end: int, **attributes: float | str) -> Span:
    return Span(lane=lane, name=name, start_cycles=start, end_cycles=end, attributes=attributes)


def test_costs_go_where_the_lanes_show_them() -> None:
    spans = (
        span("XLA Ops", "while", 0, 100),
        span("XLA Ops", "body", 20, 40),
        span("XLA Ops", "after", 100, 200),
        span("MXU", "", 25, 35, busy_share=1.0),
        span("MXU", "", 90, 130, busy_share=0.5),
        span("DMA in", "", 30, 30, bytes=7),
        span("DMA in", "", 21, 22, bytes=3000),
        span("DMA in", "", 150, 160, bytes=1000),
    )
    run = replace(timeline(), spans=spans, ops=(), hbm_read_bytes=4000, hbm_write_bytes=90, dma_wait_cycles=30)
    shares = costs(run, 3001)
    assert {name: cost.flops for name, cost in shares.items()} == {"while": 500, "body": 1000, "after": 1501}
    assert {name: cost.hbm_read_bytes for name, cost in shares.items()} == {"while": 0, "body": 3000, "after": 1000}
    # no lane shows a write or a wait: they go by cycles
    assert sum(cost.hbm_write_bytes for cost in shares.values()) == 90
    assert sum(cost.wait_cycles for cost in shares.values()) == 30
