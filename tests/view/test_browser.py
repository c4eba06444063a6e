"""XProf's trace viewer with a modelled run, in a real browser without the internet."""

from __future__ import annotations

import urllib.parse
from pathlib import Path

import pytest

from ratchet.view.xspace import trace_path, write_xspace
from tests.report.browser import browser_path, chromium
from tests.tpu.machine.golden_dumps import COMPILERS, model, unpack

from .xprof import served

LANES = "XLA Ops,Grid steps,DMA in,DMA out,DMA wait,MXU,VALU,XLU,EUP,VLOAD,VSTORE,SALU,stalls".split(",")
BLANK_BYTES = 40_000
"""A screenshot of the viewer without a trace is smaller than this, one with lanes much larger."""


@pytest.mark.slow
@pytest.mark.skipif(browser_path() is None, reason="no browser: set RATCHET_BROWSER to the path of a Chromium")
def test_the_trace_viewer_shows_the_lanes(tmp_path: Path) -> None:
    run = model(unpack(COMPILERS[0], "flash", tmp_path / "dumps"))
    write_xspace(run, trace_path(tmp_path / "traces", "e1"), title="causal_flash")
    data = urllib.parse.urlencode({"run": "e1/e1", "tag": "trace_viewer@", "host": "modelled"})
    query = {"is_streaming": "true", "is_oss": "true", "trace_data_url": f"/data/plugin/profile/data?{data}"}
    picture = tmp_path / "trace_viewer.png"
    with served(tmp_path / "traces") as server, chromium() as browser:
        tab = browser.new_page(viewport={"width": 1600, "height": 1000})
        tab.goto(f"{server}/trace_viewer_index.html?{urllib.parse.urlencode(query)}")
        tab.wait_for_function(f"document.documentElement.innerHTML.includes({LANES[-1]!r})", timeout=120_000)
        tab.screenshot(path=picture)
        shown = tab.content()
    assert "modelled /device:TPU:0" in shown
    places = [shown.find(f"{lane} (modelled)") for lane in LANES]
    assert min(places) >= 0, [lane for lane, place in zip(LANES, places, strict=True) if place < 0]
    assert places == sorted(places), "the lanes are in another order"
    image = picture.read_bytes()
    assert image.startswith(b"\x89PNG")
    assert len(image) > BLANK_BYTES, f"the picture looks empty: {picture}"
