"""Memory of this process and all that it starts, together, while a block runs."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

_EVERY_S = 0.5
_PROC = Path("/proc")


class Peak:
    """The most that was seen, in bytes; shared pages count once over all processes."""

    def __init__(self) -> None:
        self.bytes = 0
        self._over = threading.Event()

    @classmethod
    @contextlib.contextmanager
    def measured(cls) -> Iterator[Peak]:
        """Looked at twice a second until the block ends."""
        peak = cls()
        watching = threading.Thread(target=peak._watch, daemon=True)
        watching.start()
        try:
            yield peak
        finally:
            peak._over.set()
            watching.join()

    def _watch(self) -> None:
        while not self._over.wait(_EVERY_S):
            self.bytes = max(self.bytes, sum(map(_held, _tree(os.getpid()))))


def _tree(top: int) -> list[int]:
    children: dict[int, list[int]] = defaultdict(list)
    for stat in _PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            parent = stat.read_text().rpartition(")")[2].split()[1]
            children[int(parent)].append(int(stat.parent.name))
    found = [top]
    for one in found:
        found += children[one]
    return found


def _held(pid: int) -> int:
    """Its proportional share of memory."""
    try:
        said = re.search(r"^Pss:\s+(\d+) kB", (_PROC / str(pid) / "smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(said[1]) << 10 if said else 0
