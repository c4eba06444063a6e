"""Cells under one another: the one way in which tables of plain text are laid out."""

from __future__ import annotations

from collections.abc import Sequence


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
