"""Children that do what they are asked, in tests: how they are asked, and what Linux says of their processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ratchet.process.sandbox.child import Child, Ending, Limits

HOSTILE = "tests.process.sandbox.hostile"
"""The module of a child that attacks."""
QUICK = "tests.process.sandbox.quick"
"""One that does the same, without the libraries whose import takes a second."""
LIMITS = Limits(seconds=250, memory_bytes=4 << 30)


def asked(child: Child, attack: str, argument: object = "", limits: Limits = LIMITS) -> Ending:
    """Ask a child for an attack of ``hostile``."""
    return child.ask(Path(f"{attack} {str(argument).replace('/', '|')}"), limits)


def answer(child: Child, attack: str, argument: object = "") -> str:
    """What it answers, which it has to."""
    ending = asked(child, attack, argument)
    assert (ending.how, ending.returncode) == ("answered", None), (ending.how, ending.tail)
    return ending.answer


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
