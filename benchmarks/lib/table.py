"""What every benchmark prints: a table a person can read, and with ``--json FILE`` the same rows as data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Row = Mapping[str, Any]


def show(title: str, rows: Sequence[Row], *, json_file: Path | None = None) -> None:
    """Print ``rows`` (all with the keys of the first) and write them to ``json_file`` if given."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name, value in rows[0].items():
        table.add_column(name, justify="right" if isinstance(value, int | float) else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    Console(width=None if Console().is_terminal else 160, highlight=False, markup=False).print(table)
    if json_file is not None:
        json_file.write_text(json.dumps({"title": title, "rows": list(rows)}, indent=1) + "\n")


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
