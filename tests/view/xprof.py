"""XProf itself, asked what it makes of a trace: its converters, and its server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.search.nodes import free_port


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
