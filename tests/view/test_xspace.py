"""The modelled trace, read back by the tools that people will open it with."""

import json
import subprocess
import sys
import urllib.parse
import urllib.request
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.tpu.chips import V5E
from ratchet.values import Span, SpanKind
from ratchet.view.xcosts import label
from ratchet.view.xspace import trace_path, write_xspace
from tests.tpu.machine.golden_dumps import COMPILERS, model, unpack

from .timelines import FLOPS, timeline
from .xprof import read, rows, served

LANES = [
    "Steps (modelled)",
    "XLA Modules (modelled)",
    "XLA Ops (modelled)",
    "Grid steps (modelled)",
    "DMA in (modelled)",
    "DMA in 2 (modelled)",
    "DMA out (modelled)",
    "DMA wait (modelled)",
    "MXU (modelled)",
    "spills (modelled)",
]
US = timeline().cycles / V5E.clock_hz * 1e6


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profile_data")
    return write_xspace(timeline(), trace_path(folder, "e1"), title="causal_flash", flops=FLOPS)


def slices(events: list[dict]) -> dict[str, list[dict]]:
    """Slices of the trace viewer's data by the displayed name of their lane, in order of display."""
    lanes = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    found = defaultdict(list, {name: [] for _, name in sorted(lanes.items())})
    for event in events:
        if event.get("ph") == "X":
            found[lanes[event["tid"]]].append(event)
    return found


@pytest.mark.parametrize(
    ("kind", "lane", "name", "attributes", "said"),
    [
        (SpanKind.NAMED, "XLA Ops", "fusion.1\n", {}, "fusion.1"),
        (SpanKind.RUN, "XLA Modules", "", {}, "modelled run"),
        (SpanKind.STEP, "Steps", "k\x1b[2J", {"step": 3}, "step 3 of k"),
        (SpanKind.STEPS, "Steps", "k", {"first_step": 3, "last_step": 9, "steps": 7}, "steps 3–9 of k (summarised)"),
        (SpanKind.BUSY, "MXU", "", {"busy_share": 0.914}, "91% busy"),
        (SpanKind.BUSY, "stalls", "", {"busy_share": 0.25, "steps": 4}, "(summarised) 25% empty bundles"),
        (SpanKind.BUSY, "EUP", "copy.1", {"busy_share": 0.5}, "copy.1: 50% busy"),
        (SpanKind.COPY, "DMA in", "", {"bytes": 64, "source": "hbm", "target": "vmem"}, "hbm→vmem 64 B"),
        (SpanKind.WAIT, "DMA wait", "", {"for": "flag 3"}, "wait 20 cycles"),
        (SpanKind.MESSAGE, "ICI out", "", {"bytes": 64, "to_chip": 2}, "64 B to chip 2"),
        (SpanKind.MESSAGE, "ICI in", "", {"bytes": 0, "from_chip": 2}, "signal from chip 2"),
        (SpanKind.SUMMARY, "DMA wait", "", {"count": 12}, "12 more (summarised)"),
    ],
)
def test_label(kind: SpanKind, lane: str, name: str, attributes: dict, said: str) -> None:
    span = Span(lane=lane, kind=kind, name=name, start_cycles=10, end_cycles=30, attributes=attributes)
    assert label(span) == said


def test_every_span_of_a_run_has_a_label(tmp_path: Path) -> None:
    timeline = model(unpack(COMPILERS[0], "flash", tmp_path))
    labels = [label(span) for span in timeline.spans]
    assert all(labels)
    assert sum(said.startswith("step ") for said in labels) == 34


def test_trace_viewer_shows_every_lane_and_span(trace: Path) -> None:
    lanes = slices(read(trace, "trace_viewer")["traceEvents"])
    assert list(lanes) == LANES
    assert [len(lanes[name]) for name in LANES] == [1, 1, 2, 8, 8, 8, 1, 8, 8, 8]
    [run] = lanes["XLA Modules (modelled)"]
    assert run["name"] == "causal_flash (modelled)"
    assert run["dur"] == pytest.approx(US)
    assert run["args"]["evaluator"] == "modelled, not measured"
    kernel = lanes["XLA Ops (modelled)"][1]
    assert kernel["name"] == "flash.2 (modelled)"
    assert kernel["ts"] == pytest.approx(2000 / 1500, abs=1e-5)
    assert lanes["DMA in (modelled)"][0]["args"]["bytes"] == "65536"


def test_hlo_stats_credits_the_flops_to_the_kernel(trace: Path) -> None:
    kernel, fusion = rows(read(trace, "hlo_stats"))
    assert (kernel["hlo_op_name"], kernel["category"]) == ("flash.2", "custom-call (modelled)")
    assert kernel["model_flop_rate"] == pytest.approx(FLOPS / kernel["total_time"] / 1e3, rel=1e-3)
    assert (fusion["hlo_op_name"], fusion["model_flop_rate"]) == ("fusion.1", 0)
    assert kernel["total_time"] + fusion["total_time"] == pytest.approx(US, rel=1e-4)


def test_jax_reads_it_back(trace: Path) -> None:
    from jax.profiler import ProfileData

    [plane] = [plane for plane in ProfileData.from_file(str(trace)).planes if plane.name == "/device:TPU:0"]
    assert [line.name for line in plane.lines][:3] == ["Steps", "XLA Modules", "XLA Ops"]
    assert {event.name for line in plane.lines if line.name == "MXU" for event in line.events} == {"busy"}


def test_costs_said_by_a_span_win_over_shares(tmp_path: Path) -> None:
    plain = timeline()
    said = {"flops": 1000, "hbm_read_bytes": 4000, "hbm_write_bytes": 96, "category": "loop fusion"}
    spans = [replace(s, attributes=said) if s.name == "fusion.1" else s for s in plain.spans]
    path = write_xspace(replace(plain, spans=tuple(spans)), tmp_path / "t.xplane.pb", title="t", flops=FLOPS)
    kernel, fusion = rows(read(path, "hlo_stats"))
    assert fusion["category"] == "loop fusion (modelled)"
    assert fusion["measured_memory_bw"] * fusion["total_time"] * 1e-6 * 2**30 == pytest.approx(4096, rel=1e-3)
    moved = plain.hbm_read_bytes + plain.hbm_write_bytes - 4096
    assert kernel["measured_memory_bw"] * kernel["total_time"] * 1e-6 * 2**30 == pytest.approx(moved, rel=1e-3)


def test_ops_may_nest_but_others_get_a_line_each(tmp_path: Path) -> None:
    spans = [("while", 0, 100), ("body", 10, 50), ("copy-start", 40, 120)]
    ops = tuple(Span(lane="XLA Ops", name=n, start_cycles=a, end_cycles=b) for n, a, b in spans)
    path = write_xspace(replace(timeline(), cycles=120, spans=ops, ops=()), tmp_path / "t.xplane.pb", title="t")
    lanes = slices(read(path, "trace_viewer")["traceEvents"])
    assert [e["name"] for e in lanes["XLA Ops (modelled)"]] == ["while (modelled)", "body (modelled)"]
    assert [e["name"] for e in lanes["Async XLA Ops (modelled)"]] == ["copy-start (modelled)"]


def test_every_op_has_a_category(tmp_path: Path) -> None:
    opcodes = {"a": {}, "b": {"opcode": "copy"}, "c": {"opcode": "copy", "category": "data formatting"}}
    ops = tuple(
        Span(lane="XLA Ops", name=name, start_cycles=place, end_cycles=place + 1, attributes=said)
        for place, (name, said) in enumerate(opcodes.items())
    )
    path = write_xspace(replace(timeline(), cycles=3, spans=ops, ops=()), tmp_path / "t.xplane.pb", title="t")
    categories = {row["hlo_op_name"]: row["category"] for row in rows(read(path, "hlo_stats"))}
    assert categories == {"a": "unknown (modelled)", "b": "copy (modelled)", "c": "data formatting (modelled)"}


def test_same_timeline_same_bytes(tmp_path: Path, trace: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.view.timelines import FLOPS, timeline;"
        "from ratchet.view.xspace import write_xspace;"
        "write_xspace(timeline(), Path(sys.argv[1]), title='causal_flash', flops=FLOPS)"
    )
    other = tmp_path / "other.xplane.pb"
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", script, str(other)], cwd=root, check=True, env={"PYTHONHASHSEED": "7"})
    assert other.read_bytes() == trace.read_bytes()


@pytest.mark.slow
def test_sixteen_thousand_steps_stay_small(tmp_path: Path) -> None:
    path = write_xspace(timeline(16384), tmp_path / "t.xplane.pb", title="t", flops=FLOPS)
    assert path.stat().st_size < 4 << 20


def test_compiled_module_travels_along(tmp_path: Path) -> None:
    from jax.profiler import ProfileData
    from jaxlib import _hlo

    text = "HloModule attn\n\nENTRY main {\n  ROOT x = f32[8]{0} parameter(0)\n}\n"
    module = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    path = write_xspace(timeline(), tmp_path / "t.xplane.pb", title="attn", hlo_module=module)
    planes = [plane.name for plane in ProfileData.from_file(str(path)).planes]
    assert planes == ["/device:TPU:0", "/host:CPU", "/host:metadata"]
    assert read(path, "op_profile")["byProgram"]["children"][0]["name"] == "modelled_attn(1)"


def test_refuses_what_it_cannot_show(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such chip: 'v9'"):
        write_xspace(replace(timeline(), chip="v9"), tmp_path / "t", title="t")
    backwards = Span(lane="MXU", name="busy", start_cycles=5, end_cycles=4)
    with pytest.raises(ValueError, match="from 5 to 4"):
        write_xspace(replace(timeline(), spans=(backwards,)), tmp_path / "t", title="t")


def test_names_are_cleaned(tmp_path: Path) -> None:
    nasty = Span(lane="M\x1b[31mXU", name="a\ud800\nb", start_cycles=0, end_cycles=4, attributes={"k": "\x1b]0;x\x07v"})
    path = write_xspace(replace(timeline(), spans=(nasty,)), tmp_path / "t.xplane.pb", title="t\x00")
    [event] = slices(read(path, "trace_viewer")["traceEvents"])["MXU (modelled)"]
    assert (event["name"], event["args"]["k"]) == ("a b (modelled)", "v")


# --- the real server ----------------------------------------------------------------------------


def get(url: str) -> object:
    import gzip

    with urllib.request.urlopen(url, timeout=250) as reply:
        body = reply.read()
    return json.loads(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)


def test_a_real_xprof_server_shows_every_experiment(tmp_path: Path) -> None:
    ids = ["20260102-030405-aaaa", "20260102-030406-bbbb", "20260102-030407-cccc"]
    for number, name in enumerate(ids, start=1):
        write_xspace(timeline(8 * number), trace_path(tmp_path, name), title="causal_flash", flops=FLOPS)
    with served(tmp_path) as base:
        runs = get(f"{base}/runs")
        assert sorted(runs) == [f"{name}/{name}" for name in ids]
        for number, name in enumerate(ids, start=1):
            run = urllib.parse.quote(f"{name}/{name}", safe="")
            assert "trace_viewer@" in get(f"{base}/run_tools?run={run}")
            assert get(f"{base}/hosts?run={run}&tag=trace_viewer@") == [{"hostname": "modelled"}]
            events = get(f"{base}/data?run={run}&tag=trace_viewer@&host=modelled")["traceEvents"]
            [process] = [e["args"]["name"] for e in events if e.get("name") == "process_name"]
            assert process == "modelled /device:TPU:0"
            lanes = slices(events)
            assert list(lanes) == LANES
            assert len(lanes["Grid steps (modelled)"]) == 8 * number
            assert lanes["DMA wait (modelled)"][0]["name"] == "wait for k (modelled)"


def test_each_chip_of_a_slice_has_a_plane(tmp_path: Path) -> None:
    sent = Span(lane="ICI out", name="32 B to chip 1", start_cycles=10, end_cycles=20)
    chips = tuple(replace(timeline(), chip_index=i, spans=(*timeline().spans, sent)) for i in range(4))
    path = write_xspace(replace(chips[3], chips=chips), trace_path(tmp_path, "e2"), title="decode", flops=FLOPS)
    events = read(path, "trace_viewer")["traceEvents"]
    planes = {e["args"]["name"] for e in events if e.get("name") == "process_name"}
    assert {f"/device:TPU:{i}" for i in range(4)} <= planes
    assert sum(e.get("name") == "thread_name" and e["args"]["name"] == "ICI out (modelled)" for e in events) == 4
