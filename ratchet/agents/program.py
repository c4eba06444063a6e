"""This program's own command line, started as a process of its own: a turn asked for by an agent is a turn like any."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from ratchet.process.boot import home


def command() -> tuple[str, ...]:
    """What starts the command line, as ``ratchet.sh`` and the installed ``ratchet`` do; arguments follow."""
    return (sys.executable, "-I", "-S", str(home.START), "ratchet")


def experiment(message: str, *, kernel: str, wait_s: float = 0) -> tuple[str, ...]:
    """Arguments of one experiment; the message is data, whatever it begins with."""
    return ("run", "--json", "--kernel", kernel, "--wait", str(wait_s), "--", message)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How a run of the command line ended."""

    exit_code: int
    output: str

    @property
    def document(self) -> dict[str, Any] | None:
        """The JSON document that it printed; None where it printed none."""
        try:
            document = json.loads(self.output)
        except ValueError:
            return None
        return document if isinstance(document, dict) else None
