"""Untrusted text made fit to print.

Notes, names and reasons come from kernel files, commit messages and compilers. Printed as they are,
they could move the cursor, hide or reorder what is beside them, or forge a line of ours.
"""

from __future__ import annotations

import re
import unicodedata

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor moves
    r"|\x1b[\]PX^_][^\x1b\x07]*(?:\x07|\x1b\\)"  # window titles, links and other strings for the terminal
    r"|\x1b[ -/]*[0-~]?"
)
_LINE_ENDS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
_INVISIBLE = frozenset({"Cc", "Cf", "Cs"})
"""Unicode categories that leave no mark of their own: controls; bidi overrides and zero widths; lone surrogates."""


def clean(text: str, limit: int | None = None) -> str:
    """``text`` as one printable line of at most ``limit`` characters.

    Escape sequences and invisible characters go, line ends and tabs become a space. A cut is marked
    with an ellipsis.
    """
    text = _ESCAPES.sub("", text)
    text = _LINE_ENDS.sub(" ", text).replace("\t", " ")
    text = "".join(char for char in text if unicodedata.category(char) not in _INVISIBLE).strip()
    if limit is not None and len(text) > limit:
        text = text[: limit - 1].rstrip() + "…"
    return text


def clean_lines(text: str) -> list[str]:
    """The lines of ``text``, each made printable; empty ones are left out."""
    return [line for line in map(clean, _LINE_ENDS.split(_ESCAPES.sub("", text))) if line]
