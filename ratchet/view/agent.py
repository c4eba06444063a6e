"""What became of an agent's turns, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ratchet.values.agent import Stop, Turn
from ratchet.view.text import clean, columns

_NOTE = 60


def run_text(turns: Sequence[Turn], end: Stop, folder: str) -> str:
    """A line for each turn, and why no further one was taken."""
    rows = [
        [
            str(turn.number),
            turn.ending.value,
            f"{turn.seconds:.0f} s",
            clean(turn.id, 24),
            clean(turn.status, 24),
            clean(turn.decision, 24),
            clean(turn.note, _NOTE),
        ]
        for turn in turns
    ]
    lines = columns([["turn", "ended", "took", "experiment", "status", "decision", "note"], *rows])
    return "\n".join([*(f"  {line}" for line in lines), f"stopped: {end.value}", f"transcripts: {clean(folder)}"])


def run_document(turns: Sequence[Turn], end: Stop, folder: str) -> dict[str, Any]:
    """The same as plain JSON values."""
    return {
        "stopped": end.name.lower(),
        "folder": folder,
        "turns": [
            {
                "turn": turn.number,
                "ending": turn.ending.name.lower(),
                "seconds": turn.seconds,
                "exit_code": turn.exit_code,
                "note": turn.note,
                "id": turn.id or None,
                "status": turn.status or None,
                "decision": turn.decision or None,
            }
            for turn in turns
        ],
    }
