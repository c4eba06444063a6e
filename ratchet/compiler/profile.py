"""The bundles of a program's units from a profile, in place of dumps: see ``ratchet/dump/scheduled.py``."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from jaxlib import _profiler  # type: ignore[attr-defined]

from ratchet.compiler.environment import DUMP_FOLDER
from ratchet.dump.llo import schedules
from ratchet.dump.names import named
from ratchet.dump.scheduled import LAST_PASS, scheduled


def profiled(lowered: Any) -> Any:
    """``lowered.compile()``; the texts that are read of its units are made of what it registered.

    Where that does not fit together, a unit lacks its listing, and who asked compiles the program as any other.
    """
    registered()  # what is left of a program that did not compile
    compiled = lowered.compile()
    with contextlib.suppress(ValueError):
        write_schedules(registered(), Path(os.environ[DUMP_FOLDER]))
    return compiled


def registered() -> bytes:
    """What the compiler registered for profilers since this was asked last, as an ``XSpace``.

    The session ends at once: one that lasts keeps a core busy, and what was compiled before it is in it, too.
    """
    options = _profiler.ProfileOptions()
    options.host_tracer_level = options.python_tracer_level = 0
    return bytes(_profiler.ProfilerSession(options).stop())


def write_schedules(space: bytes, dumps: Path) -> None:
    """Write to ``dumps``, for each unit that has a text of its last pass there, the texts that are read of it.

    Raises:
      ValueError: where text and profile do not agree, or do not read.
    """
    found = schedules(space)
    for text in sorted(dumps.glob(f"*-{LAST_PASS}.txt")):
        dump = named(text)
        if dump and dump.name in found:
            for label, written in scheduled(text.read_text(), found[dump.name]).by_pass.items():
                (dumps / f"{dump.unit}-00-{label}.txt").write_text(written)
            text.unlink()
