"""Real nodes of a Ray cluster on this machine, and a search on them in a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ratchet.commands import options
from ratchet.commands.node import START, words
from ratchet.process import key
from ratchet.search import cluster

REPOSITORY = Path(__file__).parents[2]
_FAKE = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); from tests.search import fake_node; fake_node.main()"
FAKE = [sys.executable, "-c", _FAKE]
"""What a lane starts: a judge that computes what constants are worth."""


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def descendants(pid: int) -> list[int]:
    """A process and all that it started, also those that changed their group."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
    return found


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a node, with all its processes at once."""
    for pid in descendants(process.pid):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


@contextmanager
def nodes(
    folder: Path, count: int, *, lanes: int = 1, measures: str = "", lies: tuple[float, ...] = (), **environment: str
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A head without lanes of its own, and ``count`` nodes: its address and their processes.

    Those that measure may lie, each so many times.
    """
    port = free_port()
    address = f"127.0.0.1:{port}"
    token = folder / "token"
    token.write_text("0" * 64)
    token.chmod(0o600)
    given = {**os.environ, **cluster.environment(), "RAY_AUTH_TOKEN_PATH": str(token), **environment}
    with ExitStack() as stack:
        short = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True))

        def start(*arguments: str, cpus: int, times_faster: float = 1.0) -> subprocess.Popen[bytes]:
            """A node that runs. Ray gives one up that has not after 30 s, which on a busy machine it may not have."""
            asked = words(options.ratchet(["node", *arguments, "--lanes", "1"]))
            asked[asked.index("--num-cpus") + 1] = str(cpus)
            command = [sys.executable, "-c", START, *asked]
            own = {**given, "FAKE_NODE_TIMES_FASTER": str(times_faster)}
            for _ in range(5):
                log = Path(tempfile.mkstemp(dir=folder, suffix=".log")[1])
                with log.open("wb") as file:
                    process = subprocess.Popen(command, env=own, stdout=file, stderr=file, start_new_session=True)
                stack.callback(kill, process)
                while process.poll() is None and b"Ray runtime started" not in log.read_bytes():
                    time.sleep(0.2)
                if process.poll() is None:
                    return process
            raise AssertionError(log.read_text())

        start("--port", str(port), "--folder", short, cpus=0)  # names of sockets may have 107 characters
        announced = ("--measures", measures) if measures else ()
        told = (*lies, *[1.0] * count)[:count]
        yield address, [start(address, *announced, cpus=lanes, times_faster=one) for one in told]


def driver(
    root: Path, address: str, folder: Path, *, lanes: int, does: str, measures: str = ""
) -> subprocess.Popen[str]:
    """Runs what uses ``root`` and ``made``, a cluster, once there are so many lanes."""
    code = (
        "import os, pathlib, sys, time\n"
        f"from ratchet.process import key; key.path = lambda: pathlib.Path({str(key.path())!r})\n"
        "from ratchet.search import cluster\n"
        f"token = {str(folder / 'token')!r}\n"
        "real = cluster.environment\n"
        "cluster.environment = lambda: {**real(), 'RAY_AUTH_TOKEN_PATH': token}\n"
        "from tests.search import fakes, nodes\n"
        f"with cluster.connected({address!r}, say=print, command=nodes.FAKE, measures={measures!r}) as made:\n"
        f"    while made.lanes < {lanes}:\n"
        "        time.sleep(0.2)\n"
        f"        made.look()\n"
        f"    root = pathlib.Path({str(root)!r})\n"
        f"    {does}\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
