"""The ledger as a pandas DataFrame, and what is computed over its rows. The only module that imports pandas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from ratchet.loop import ledger
from ratchet.values import Fidelity, Row
from ratchet.values.status import Refusal, Status

DataFrame: TypeAlias = pd.DataFrame

FLOATS = (
    "score median_ms util_pct tflops bw_util_pct wait_ms band_low_ms band_high_ms modelled_ms "
    "speedup speedup_low speedup_high seconds"
).split()
INTEGERS = "vmem_bytes spills launches samples".split()
TIME = "time"


def read(path: Path) -> DataFrame:
    """The ledger at ``path``, chain verified, oldest row first; no rows where there is no file.

    Returns:
        One column per field of :class:`ratchet.values.Row`, in order and by its name: ``FLOATS`` as Float64,
        ``INTEGERS`` as Int64, ``time`` as UTC timestamps, the others as text. What is empty in the file is NA.

    Raises:
        Refusal: LEDGER_BROKEN.
    """
    return table(ledger.read(path))


def table(rows: Sequence[Row]) -> DataFrame:
    """``rows`` as :func:`read` returns them."""
    return DataFrame({name: _column(name, rows) for name in ledger.COLUMNS})


def _column(name: str, rows: Sequence[Row]) -> pd.Series:
    cells = [getattr(row, name) for row in rows]
    if name == TIME:
        return pd.to_datetime(pd.Series(_parsed(name, rows, pd.Timestamp), dtype=object), utc=True)
    if name in FLOATS:
        return pd.Series(_parsed(name, rows, float), dtype="Float64")
    if name in INTEGERS:
        return pd.Series(_parsed(name, rows, int), dtype="Int64")
    return pd.Series([cell or pd.NA for cell in cells], dtype="string")


def _parsed(name: str, rows: Sequence[Row], parse: Callable[[str], object]) -> list[object]:
    """The column ``name``; Python's own parser, because pandas' may differ in a float's last digit."""
    values: list[object] = []
    for row in rows:
        cell = getattr(row, name)
        try:
            values.append(parse(cell) if cell else pd.NA)
        except ValueError:
            message = f"row {row.id}: {name} is {cell!r:.60}, wanted {'a time' if name == TIME else 'a number'}"
            raise Refusal(Status.LEDGER_BROKEN, message) from None
    return values


def fidelities(rows: DataFrame) -> tuple[Fidelity, ...]:
    """Every row that has a measured and a modelled latency, oldest first."""
    both = rows[rows["median_ms"].notna() & (rows["modelled_ms"] > 0).fillna(False)]
    outside = ~both["median_ms"].between(both["band_low_ms"], both["band_high_ms"]).fillna(True)
    shown = both[["id", "chip", "median_ms", "modelled_ms"]].fillna({"chip": ""}).assign(outside=outside)
    return tuple(
        Fidelity(
            id=row["id"],
            chip=row["chip"],
            measured_ms=float(row["median_ms"]),
            modelled_ms=float(row["modelled_ms"]),
            outside_band=bool(row["outside"]),
        )
        for row in shown.to_dict("records")
    )
