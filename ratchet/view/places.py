"""Places in words."""

from __future__ import annotations

from typing import assert_never

from ratchet.values.place import Code, Op, Place, SourceLine, Windows
from ratchet.view.text import clean

_CODE = {
    Code.PIPELINE: "pipeline code of the compiler",
    Code.VECTOR: "vector code without a source line",
    Code.TOP_LEVEL: "(top level)",
}


def where(place: Place) -> str:
    """``kernel.py:45``, or in words what has no line. Names of files and ops are cleaned: they are the author's."""
    match place:
        case SourceLine():
            return f"{clean(place.file)}:{place.line}"
        case Code():
            return _CODE[place]
        case Op():
            alike = f" and {place.alike} alike" if place.alike else ""
            return f"{clean(place.name)}{alike} ({clean(place.opcode)})"
        case Windows():
            return f"waits for {_windows(place)}"
    assert_never(place)


def waited(place: Place) -> str:
    """What a wait is for, or where it is: ``for window input 0``, ``at kernel.py:45``."""
    return f"for {_windows(place)}" if isinstance(place, Windows) else f"at {where(place)}"


def _windows(place: Windows) -> str:
    return "window " + ", ".join(f"{window.kind} {window.number}" for window in place.windows)
