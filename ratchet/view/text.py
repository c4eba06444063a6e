"""What every text is made of: untrusted text made fit to print, numbers and places in words, columns.

Notes, names and reasons come from kernel files, commit messages and compilers. Printed as they are,
they could move the cursor, hide or reorder what is beside them, or forge a line of ours.
"""

from __future__ import annotations

import math
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import assert_never

from ratchet.values.place import Code, Op, Place, SourceLine, Windows

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor moves
    r"|\x1b[\]PX^_][^\x1b\x07]*(?:\x07|\x1b\\)"  # window titles, links and other strings for the terminal
    r"|\x1b[ -/]*[0-~]?"
)
_LINE_ENDS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
_STATUS = re.compile(r"^[A-Z][A-Z_]{3,}: ")
_CAUSE = 240
"""Characters of a cause; a reason may be longer."""
_INVISIBLE = frozenset({"Cc", "Cf", "Cs"})
"""Unicode categories that leave no mark of their own: controls; bidi overrides and zero widths; lone surrogates."""


def clean(text: str, limit: int | None = None) -> str:
    """``text`` as one printable line of at most ``limit`` characters.

    Escape sequences and invisible characters go, line ends and tabs become a space. A cut is marked
    with an ellipsis.
    """
    if not (text.isascii() and text.isprintable()):  # nearly all is, and nothing of the kind is in it
        text = _LINE_ENDS.sub(" ", _ESCAPES.sub("", text)).replace("\t", " ")
        text = "".join(char for char in text if unicodedata.category(char) not in _INVISIBLE)
    text = text.strip()
    if limit is not None and len(text) > limit:
        text = text[: limit - 1].rstrip() + "…"
    return text


def clean_lines(text: str) -> list[str]:
    """The lines of ``text``, each made printable; empty ones are left out."""
    return [line for line in map(clean, _LINE_ENDS.split(_ESCAPES.sub("", text))) if line]


def first_line(text: str) -> str:
    """The first line of ``text`` that is not empty, made printable."""
    return next(iter(clean_lines(text)), "")


def cause(reason: str) -> str:
    """What a reason begins with, in one line: all before its first semicolon, without the name of a status.

    Every face of an outcome (the last line, the decision, JSON, MCP, an agent's turns, JUnit) takes it from here.
    """
    line = _STATUS.sub("", first_line(reason))
    return clean(line.partition("; ")[0], _CAUSE)


def cut(line: str, limit: int) -> str:
    """At most ``limit`` characters of a line; a cut is marked with an ellipsis."""
    return line if len(line) <= limit else line[: limit - 1] + "…"


def columns(rows: Sequence[Sequence[str]], *, numbers: bool = False) -> list[str]:
    """A line for each row, two spaces between columns and none behind the last.

    With ``numbers`` all columns except the last end on the right, so that digits are under one another.

    Raises:
      ValueError: the rows have different lengths.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    align = [str.rjust if numbers and place < last else str.ljust for place in range(len(widths))]
    return [
        "  ".join(to(cell, wide) for to, cell, wide in zip(align, row, widths, strict=True)).rstrip() for row in rows
    ]


def wrapped(text: str, width: int, indent: str = "", under: str = "") -> list[str]:
    """Lines of at most ``width`` characters, words with a hyphen whole; ``under`` begins all but the first."""
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=under, break_on_hyphens=False)


def fitted(text: str, width: int | None) -> str:
    """``text`` with lines of at most ``width``, if any: a longer one goes on below, further in."""
    if width is None:
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()))
        longer = len(line) > width
        lines += wrapped(line.lstrip(), max(24, width), indent, f"{indent}    ") if longer else [line]
    return "\n".join(lines)


def kind_of(evaluator: str) -> str:
    """``modelled`` or ``measured``: which of the two a number by this evaluator is."""
    return "modelled" if evaluator.endswith("-model") else "measured"


def fixed(value: float, digits: int = 5) -> str:
    """``value`` to so many significant digits, never with an exponent: ``0.00012346``, ``1234.6``, ``1234568``."""
    if not math.isfinite(value):
        return str(value)
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(0, digits - 1 - magnitude)}f}"


def size(n_bytes: int) -> str:
    """Bytes in the largest binary unit that leaves at least one: ``9.00 MiB``."""
    amount = float(n_bytes)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.2f} {unit}"
        amount /= 1024
    return f"{amount:.2f} GiB"


def number(text: str) -> float | None:
    """The finite number that a ledger cell holds, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def change(new: float, old: float) -> str:
    """Relative change in per cent with its sign, ``+12.3 %``; empty where there is nothing to relate to."""
    return percent(100 * (new / old - 1)) if old > 0 else ""


def times(faster: float) -> str:
    """``1.124x``: how many times as fast, to three or four digits."""
    rounded = float(f"{faster:.4g}" if faster < 2 else f"{faster:.3g}")
    return f"{fixed(rounded, 4 if rounded < 2 else 3)}x"


def percent(share_pct: float) -> str:
    """A change in per cent with its sign, to three digits: ``-11.1 %``, ``+284 %``, ``-0.0268 %``."""
    rounded = float(f"{share_pct:.3g}")
    return f"{'+' if rounded > 0 else ''}{fixed(rounded, 3)} %"


def time_change(faster: float) -> str:
    """What becomes of the time: ``-11.1 %`` where a run is 1.125 times as fast."""
    return "same" if faster == 1 else percent(100 * (1 / faster - 1))


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
