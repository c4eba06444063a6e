"""XProf's pages in a real browser, without the internet.

``python -m tests.view.xprof_pages TRACES OUT`` takes pictures of the newest run. The browser is the one that the
environment variable ``RATCHET_BROWSER`` names, else one on the path.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.lib.browser import browser_path
from tests.search.nodes import free_port

CHART_STAND_IN = Path(__file__).with_name("chart_stand_in.js")
TOOLS = {
    "overview_page": "HBM Utilization",
    "roofline_model": "Roofline efficiency",
    "op_profile": "Memory bandwidth utilizations",
    "memory_viewer": "Peak memory allocation",
    "hlo_stats": "custom-call",
}
"""A text of each page that is there when it is complete."""
SETTLED_MS, PATIENCE_MS = 500, 120_000


def read(path: Path, tool: str, **options: Any) -> Any:
    """What one of XProf's tools makes of a trace."""
    from xprof.convert.raw_to_tool_data import xspace_to_tool_data

    data, _ = xspace_to_tool_data([str(path)], tool, {"use_saved_result": False, **options})
    return json.loads(data)


def rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a table that is given as cells and columns."""
    names = [column["id"] for column in table["cols"]]
    return [{name: cell["v"] for name, cell in zip(names, row["c"], strict=True)} for row in table["rows"]]


@contextmanager
def served(traces: Path) -> Iterator[str]:
    """A real XProf server over a folder of traces; gives the address of its data."""
    port = free_port()
    command = [Path(sys.executable).with_name("xprof"), f"--port={port}", f"--grpc_port={free_port()}", traces]
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        base = f"http://127.0.0.1:{port}/data/plugin/profile"
        try:
            deadline = time.monotonic() + 250
            while True:
                try:
                    urllib.request.urlopen(f"{base}/runs", timeout=250).close()
                    break
                except (urllib.error.URLError, ConnectionError, TimeoutError):
                    said = Path(log.name).read_text()[-2000:]
                    assert process.poll() is None, said
                    assert time.monotonic() < deadline, said
                    time.sleep(0.2)
            yield base
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextmanager
def window(chromium: str) -> Iterator[Any]:
    """A page of a headless browser, in which the charts' library is stood in for."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = started.new_page(viewport={"width": 1600, "height": 1000})
        script = CHART_STAND_IN.read_text()
        page.route("**/charts/loader.js", lambda route: route.fulfill(body=script, content_type="text/javascript"))
        yield page
        started.close()


def pages(base: str, run: str, chromium: str, pictures: Path, tools: Mapping[str, str] = TOOLS) -> dict[str, str]:
    """The text of XProf's pages for one run, with a picture of each."""
    texts = {}
    with window(chromium) as page:
        for tool, last in tools.items():
            page.goto(f"{base}/{tool}?{urllib.parse.urlencode({'run': run, 'tag': tool, 'host': 'modelled'})}")
            page.get_by_text(last).first.wait_for(timeout=PATIENCE_MS)
            page.wait_for_timeout(SETTLED_MS)
            page.screenshot(path=pictures / f"xprof_{tool}.png")
            texts[tool] = page.inner_text("body")
    return texts


def main(traces: str, out: str) -> None:
    """Take pictures of the newest run's pages."""
    chromium = browser_path()
    assert chromium, "no browser: set RATCHET_BROWSER to the path of a Chromium"
    name = max(path.name for path in Path(traces).iterdir() if path.is_dir())
    with served(Path(traces)) as base:
        pages(base, f"{name}/{name}", chromium, Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
