"""What standard output is: how wide, and whether it may have colours."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from typing import TextIO


def terminal_width() -> int | None:
    """Columns that standard output fits: of ``width_of``, of a pipe the terminal's behind it. A file is never cut."""
    width = width_of(sys.stdout)
    with contextlib.suppress(OSError, ValueError):
        if width is None and stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
            return width_of(sys.stderr)
    return width


def width_of(stream: TextIO) -> int | None:
    """``COLUMNS``, or those of the terminal that a stream is; None where nothing says."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and int(given[:6]):
        return max(20, int(given[:6]))
    with contextlib.suppress(OSError, ValueError):
        if columns := os.get_terminal_size(stream.fileno()).columns:
            return max(20, columns)
    return None


def coloured() -> bool:
    """Whether output may have colours: https://no-color.org."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
