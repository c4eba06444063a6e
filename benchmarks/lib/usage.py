"""What a command uses with all its processes: CPU seconds by part, and the most memory at a time. Read from /proc.

Its processes are those below it, and those in its own folder for temporary files: what is forked of a process that
waited (``ratchet/process/sandbox/standby.py``) is below that one. A part is a child of the judge's, by the name of its
folder (``0001-compiler`` is ``compiler``), or ``judge``: the command itself and the walls of its children. Sampled, so
what a process does in its last moments may be missed. Pages that processes share are counted for each.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SAMPLE_S = 0.1
_CHILD = re.compile(r"\d{4}-([a-z]+)$")
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Of one command."""

    printed: str
    """Its standard output."""
    wall_s: float
    cpu_s: Mapping[str, float]
    """By part."""
    peak_bytes: int
    """Resident memory of all processes together."""

    @property
    def total_cpu_s(self) -> float:
        return sum(self.cpu_s.values())


def usage(arguments: Sequence[str], *, cwd: Path) -> Usage:
    """Run a command to its end, whatever its exit code is."""
    with tempfile.TemporaryDirectory() as made:
        folder = os.path.realpath(made)
        own = {**os.environ, "TMPDIR": folder}
        start = time.monotonic()
        process = subprocess.Popen(
            arguments, cwd=cwd, env=own, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        watch = _Watch(process.pid, folder)
        watch.start()
        printed, _ = process.communicate()
        wall = time.monotonic() - start
        watch.ended.set()
        watch.join()
    cpu: Counter[str] = Counter()
    for part, seconds in watch.seen.values():
        cpu[part] += seconds  # type: ignore[assignment]
    return Usage(printed=printed, wall_s=wall, cpu_s=dict(cpu), peak_bytes=watch.peak)


class _Watch(threading.Thread):
    def __init__(self, top: int, folder: str) -> None:
        super().__init__(daemon=True)
        self.top, self.folder, self.ended, self.peak = top, folder, threading.Event(), 0
        self.seen: dict[tuple[int, bytes], tuple[str, float]] = {}
        """By number and start of a process: its part, and its CPU seconds so far."""

    def run(self) -> None:
        while not self.ended.wait(_SAMPLE_S):
            stats = _processes()
            start = int(stats[self.top][19]) if self.top in stats else 0
            young = (pid for pid, fields in stats.items() if int(fields[19]) >= start)  # its processes are
            own = {pid for pid in young if _place(pid).startswith(f"{self.folder}/")}
            below = _below(stats, {self.top} | own)
            self.peak = max(self.peak, sum(int(stats[pid][21]) * _PAGE for pid in below))
            for pid in below:
                fields = stats[pid]
                seconds = (int(fields[11]) + int(fields[12])) / _TICKS
                self.seen[pid, fields[19]] = (_part(pid, self.seen.get((pid, fields[19]))), seconds)


def cpu_seconds() -> float:
    """Of this process, all that it started, and all that those waited for."""
    stats = _processes()
    return sum(int(field) for pid in _below(stats, {os.getpid()}) for field in stats[pid][11:15]) / _TICKS


def with_descendants(pid: int) -> set[int]:
    """A process, what it started, and what those started."""
    return _below(_processes(), {pid})


def _below(stats: Mapping[int, list[bytes]], pids: set[int]) -> set[int]:
    below = pids & stats.keys()
    while more := {pid for pid, fields in stats.items() if int(fields[1]) in below} - below:
        below |= more
    return below


def _part(pid: int, before: tuple[str, float] | None) -> str:
    """A process enters its folder once its walls are built."""
    if match := _CHILD.search(_place(pid)):
        return match[1]
    return before[0] if before else "judge"


def _place(pid: int) -> str:
    """The folder that a process is in; ``""`` where that cannot be seen."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/cwd")
    return ""


def _processes() -> dict[int, list[bytes]]:
    """By number the fields of ``/proc/N/stat`` from the state on."""
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:
            found[int(entry)] = file.read().rpartition(b")")[2].split()
    return found
