"""Frozen values as plain JSON and back, checked against their types: what comes from another process is data.

A dataclass is a list of its class's name and its fields in order, an enum of its class's name and its own. Bytes are
base64.
"""

from __future__ import annotations

import base64
import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from ratchet.values.records import MOST

T = TypeVar("T")


def encode(value: object) -> Any:
    """``value`` as what ``json.dumps`` takes."""
    if isinstance(value, Enum):
        return [type(value).__name__, value.name]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, *(encode(getattr(value, field.name)) for field in dataclasses.fields(value))]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, tuple | list):
        return [encode(one) for one in value]
    if isinstance(value, Mapping):
        return {key: encode(one) for key, one in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} is no frozen value")


def decode(kind: type[T], data: object) -> T:
    """The value of type ``kind`` that :func:`encode` made ``data`` of.

    Raises:
      ValueError: ``data`` is something else.
    """
    return typing.cast(T, _decode(kind, data))


def _decode(kind: Any, data: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _one_of(arguments, data)
    if origin is tuple:
        return _tuple(arguments, data)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        _check(data, dict, kind)
        return {_decode(arguments[0], key): _decode(arguments[1], one) for key, one in data.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        if _name(data) != kind.__name__ or len(data) != 2 or data[1] not in kind.__members__:
            raise ValueError(f"wanted a {kind.__name__}, got {data!r:.80}")
        return kind[data[1]]
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _fields(kind)
        if _name(data) != kind.__name__ or len(data) != len(hints) + 1:
            raise ValueError(f"wanted a {kind.__name__}, got {data!r:.80}")
        return kind(**{name: _decode(hint, one) for (name, hint), one in zip(hints, data[1:], strict=True)})
    return _plain(kind, data)


def _plain(kind: Any, data: Any) -> Any:
    if kind is float and type(data) is int:
        return float(_plain(int, data))
    if kind is Path:
        _check(data, str, kind)
        return Path(data)
    if kind is bytes:
        _check(data, str, kind)
        return base64.b64decode(data, validate=True)
    _check(data, kind, kind)
    if kind is int and abs(data) >= MOST:
        raise ValueError(f"wanted an integer below 2**63, got {data.bit_length()} bits")
    return data


def _one_of(kinds: tuple[Any, ...], data: Any) -> Any:
    if data is None and type(None) in kinds:
        return None
    named = {"str" if kind is bytes else kind.__name__: kind for kind in kinds if isinstance(kind, type)}
    kind = named.get(_name(data) or type(data).__name__)
    if kind is None:
        raise ValueError(f"wanted one of {', '.join(sorted(named))}, got {data!r:.80}")
    return _decode(kind, data)


def _tuple(kinds: tuple[Any, ...], data: Any) -> Any:
    _check(data, list, tuple)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_decode(kinds[0], one) for one in data)
    return tuple(_decode(kind, one) for kind, one in zip(kinds, data, strict=True))


def _check(data: object, wanted: Any, kind: Any) -> None:
    if type(data) is not wanted:
        raise ValueError(f"wanted {getattr(kind, '__name__', kind)}, got {data!r:.80}")


def _name(data: object) -> str:
    return data[0] if isinstance(data, list) and data and isinstance(data[0], str) else ""


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    hints = typing.get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in dataclasses.fields(kind))
