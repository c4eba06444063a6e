"""A modelled run as a person sees it: XProf's own pages in a real browser, without the internet.

Most pages draw charts and tables with a library from the internet, for which ``chart_stand_in.js`` stands in. The trace
viewer, the page that XProf puts in a frame, brings all it needs. So that page is opened as it is.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.lib.browser import browser_path
from ratchet.tpu.chips import V5E
from ratchet.values import Timeline
from ratchet.view.xspace import trace_path, write_xspace
from tests.tpu.machine.golden_dumps import COMPILERS, model, unpack

from .xprof_pages import PATIENCE_MS, TOOLS, pages, served, window

CHROMIUM = browser_path()
LANES = "XLA Ops,Grid steps,DMA in,DMA out,DMA wait,MXU,VALU,XLU,EUP,VLOAD,VSTORE,SALU,stalls".split(",")
BLANK_BYTES = 40_000
"""A screenshot of the viewer without a trace is smaller than this, one with lanes much larger."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no browser: set RATCHET_BROWSER to the path of a Chromium"),
]


FLOPS = 10**8


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    return model(unpack(COMPILERS[0], "flash", tmp_path_factory.mktemp("dumps")))


@pytest.fixture(scope="module")
def server(timeline: Timeline, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    traces = tmp_path_factory.mktemp("traces")
    write_xspace(timeline, trace_path(traces, "e1"), title="causal_flash", flops=FLOPS)
    with served(traces) as base:
        yield base


def test_the_trace_viewer_shows_the_lanes(server: str, tmp_path: Path) -> None:
    data = urllib.parse.urlencode({"run": "e1/e1", "tag": "trace_viewer@", "host": "modelled"})
    query = {"is_streaming": "true", "is_oss": "true", "trace_data_url": f"/data/plugin/profile/data?{data}"}
    page = f"{server}/trace_viewer_index.html?{urllib.parse.urlencode(query)}"
    picture = tmp_path / "trace_viewer.png"
    with window(CHROMIUM) as tab:
        tab.goto(page)
        tab.wait_for_function(f"document.documentElement.innerHTML.includes({LANES[-1]!r})", timeout=PATIENCE_MS)
        tab.screenshot(path=picture)
        shown = tab.content()
    assert "modelled /device:TPU:0" in shown
    places = [shown.find(f"{lane} (modelled)") for lane in LANES]
    assert min(places) >= 0, [lane for lane, place in zip(LANES, places, strict=True) if place < 0]
    assert places == sorted(places), "the lanes are in another order"
    image = picture.read_bytes()
    assert image.startswith(b"\x89PNG")
    assert len(image) > BLANK_BYTES, f"the picture looks empty: {picture}"


def test_the_pages_show_the_numbers_of_the_run(server: str, timeline: Timeline, tmp_path: Path) -> None:
    shown = pages(
        server,
        "e1/e1",
        CHROMIUM,
        tmp_path,
        {tool: TOOLS[tool] for tool in ("overview_page", "roofline_model", "op_profile")},
    )
    seconds = timeline.latency_ms / 1e3
    flops = 100 * FLOPS / seconds / V5E.peak_bf16_flops
    hbm = 100 * (timeline.hbm_read_bytes + timeline.hbm_write_bytes) / seconds / V5E.hbm_bytes_per_s
    overview = " ".join(shown["overview_page"].split())
    assert f"Utilization of TPU Matrix Units {flops:.1f}%" in overview
    assert f"HBM Utilization {hbm:.1f}%" in overview
    assert "modelled for TPU v5e" in overview
    assert "Device Type: TPU v5e (modelled)" in shown["roofline_model"]
    assert f"{flops:.2f}%" in shown["roofline_model"]
    assert f"{hbm:.2f}%" in shown["roofline_model"]
    idle_left_out = timeline.cycles / sum(op.cycles for op in timeline.ops if op.name)
    assert f"Memory bandwidth utilizations: Hbm {hbm * idle_left_out:.2f}%" in shown["op_profile"]
    assert all(len(picture.read_bytes()) > BLANK_BYTES for picture in tmp_path.glob("*.png"))
