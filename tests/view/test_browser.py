"""The lanes as a person sees them: XProf's own trace viewer in a real browser, without the internet.

XProf's start page draws its charts with a library from the internet; its trace viewer, the page that it puts in a
frame, brings all it needs. So that page is what is opened.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.view.xspace import trace_path, write_xspace
from tests.machine.golden_dumps import COMPILERS, model, unpack

from .test_xspace import free_port

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --window-size=1600,1000 --virtual-time-budget=30000"
).split()
LANES = "XLA Ops,Grid steps,DMA in,DMA out,DMA wait,MXU,VALU,XLU,EUP,VLOAD,VSTORE,SALU,stalls".split(",")
BLANK_BYTES = 40_000
"""A screenshot of the viewer without a trace is smaller than this, one with lanes much larger."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here to look at the trace with"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    timeline = model(unpack(COMPILERS[0], "flash", folder / "dumps"))
    write_xspace(timeline, trace_path(folder / "traces", "e1"), title="causal_flash", flops=10**9)
    port = free_port()
    xprof = Path(sys.executable).with_name("xprof")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [xprof, f"--port={port}", f"--grpc_port={free_port()}", folder / "traces"],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    base = f"http://127.0.0.1:{port}/data/plugin/profile"
    try:
        deadline = time.monotonic() + 250
        while True:
            try:
                urllib.request.urlopen(f"{base}/runs", timeout=250).close()
                break
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                assert process.poll() is None, (folder / "log").read_text()[-2000:]
                assert time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
                time.sleep(0.2)
        yield base
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_the_trace_viewer_shows_the_lanes(server: str, tmp_path: Path) -> None:
    data = urllib.parse.urlencode({"run": "e1/e1", "tag": "trace_viewer@", "host": "modelled"})
    query = {"is_streaming": "true", "is_oss": "true", "trace_data_url": f"/data/plugin/profile/data?{data}"}
    page = f"{server}/trace_viewer_index.html?{urllib.parse.urlencode(query)}"
    picture = tmp_path / "trace_viewer.png"
    shown = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom", f"--screenshot={picture}", page],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    ).stdout
    assert "modelled /device:TPU:0" in shown
    places = [shown.find(f"{lane} (modelled)") for lane in LANES]
    assert min(places) >= 0, [lane for lane, place in zip(LANES, places, strict=True) if place < 0]
    assert places == sorted(places), "the lanes are in another order"
    image = picture.read_bytes()
    assert image.startswith(b"\x89PNG")
    assert len(image) > BLANK_BYTES, f"the picture looks empty: {picture}"
