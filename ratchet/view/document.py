"""Documents of ``--json``: frozen values as plain JSON, each field under its own name unless a table says otherwise."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any

from ratchet.values import Band
from ratchet.values.place import Code, Op, SourceLine, Windows
from ratchet.values.status import Status
from ratchet.view.text import number, where

Table = dict[Any, Any]
"""The keys of a class's document, in order, each with a function of the value or the name of an attribute. In
``score.band``, an attribute of an attribute, what is None has None.

Under ``...`` are the fields that are left out, and it stands for all fields that are not named otherwise. Without it
there are the keys of the table alone. A function under the name of a field takes that field's place.
"""
Tables = dict[Any, Any]
"""By class; a function makes the whole document of a value."""
_COMMON: Tables = {Status: lambda status: status.name, **dict.fromkeys((SourceLine, Code, Op, Windows), where)}


def plain(value: Any, tables: Tables | None = None) -> Any:
    """``value`` as what ``json.dumps`` takes: enums by value, places in words, numbers that are not finite as None."""
    table = (tables or {}).get(type(value), _COMMON.get(type(value)))
    if callable(table):
        return plain(table(value), tables)
    if dataclasses.is_dataclass(value):
        return {key: plain(one, tables) for key, one in _items(value, table if table is not None else {...: ()})}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(one, tables) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one, tables) for one in value]
    if isinstance(value, Enum):
        return value.value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def dumps(document: Mapping[str, Any]) -> str:
    """The document as text: ASCII, so that no terminal takes a name in it for a command."""
    return json.dumps(document, indent=2, allow_nan=False)


def same(*names: str, of: str = "") -> dict[str, str]:
    """Keys that are named as their attributes are, those of the value or of its attribute ``of``."""
    return {name: f"{of}.{name}" if of else name for name in names}


def or_null(*names: str) -> dict[str, Callable[[Any], Any]]:
    """The same, with null for what is empty."""
    return {name: partial(_or_none, name) for name in names}


def numbers(*names: str, of: str = "", **renamed: str) -> dict[str, Callable[[Any], float | None]]:
    """Cells of a ledger's row as numbers; ``renamed`` are keys with the column that each is of."""
    columns = same(*names) | renamed
    return {key: partial(_number, f"{of}.{name}" if of else name) for key, name in columns.items()}


MODELLED: Table = {"kind": lambda _: "modelled"}
BAND_MS: Tables = {Band: lambda band: [band.low_ms, band.high_ms]}


def outcome(status: Status) -> dict[str, Any]:
    """What the process ends with."""
    return {"status": status.name, "exit_code": status.exit_code, "meaning": status.meaning}


def _items(value: Any, table: Table) -> Iterator[tuple[str, Any]]:
    fields = {field.name: field.name for field in dataclasses.fields(value)} if ... in table else {}
    named = {one.partition(".")[0] for one in table.values() if isinstance(one, str)}
    for key, of in table.items():
        if key is ...:
            rest = (name for name in fields if name in table or name not in {*of, *named})
            yield from ((name, _one(value, table.get(name, name))) for name in rest)
        elif key not in fields:
            yield key, _one(value, of)


def _one(value: Any, of: str | Callable[[Any], Any]) -> Any:
    if callable(of):
        return of(value)
    for name in of.split("."):
        value = getattr(value, name) if value is not None else None
    return value


def _or_none(name: str, value: Any) -> Any:
    return getattr(value, name) or None


def _number(cell: str, value: Any) -> float | None:
    text = _one(value, cell)
    return None if text is None else number(text)
