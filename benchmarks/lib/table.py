"""What every benchmark prints: tables a person can read, and with ``--json FILE`` the same rows as data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Row = Mapping[str, Any]


def show(title: str, rows: Sequence[Row], *, json_file: Path | None = None) -> None:
    """Print one table; see :func:`show_all`."""
    show_all({title: rows}, json_file=json_file)


def show_all(tables: Mapping[str, Sequence[Row]], *, json_file: Path | None = None) -> None:
    """Print tables by title and write them to ``json_file`` if given; a column for every key of a row."""
    console = Console(width=None if Console().is_terminal else 160, highlight=False, markup=False)
    for title, rows in tables.items():
        if not rows:
            continue
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        columns = list(dict.fromkeys(name for row in rows for name in row))
        for name in columns:
            numbers = any(isinstance(row.get(name), int | float) for row in rows)
            table.add_column(name, justify="right" if numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(*(text_of(row.get(name)) for name in columns))
        console.print(table)
    if json_file is not None:
        json_file.write_text(json.dumps(tables, indent=1) + "\n")


def text_of(value: Any) -> str:
    """A cell: four digits of a float, nothing for None."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
