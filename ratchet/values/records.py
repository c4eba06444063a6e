"""Records of other processes: JSON objects, every field checked against its kind before it is used."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from ratchet.values.status import Refusal, Status

MOST = 1 << 63
"""No integer of a record is as large."""
Kind = Callable[[Any], bool]
Refuse = Callable[[str], Refusal]


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < MOST


def is_real(value: Any) -> bool:
    """Infinity and NaN are real enough: an error may be infinite."""
    return isinstance(value, float) or (type(value) is int and abs(value) < MOST)


def is_seconds(value: Any) -> bool:
    return is_real(value) and math.isfinite(value) and value >= 0


def is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


def is_counts(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_count, value))


def is_status(value: Any) -> bool:
    return isinstance(value, str) and value in Status.__members__


def is_refused(value: Any) -> bool:
    """A status that is a failure, and a message."""
    return isinstance(value, list) and len(value) == 2 and is_status(value[0]) and is_text(value[1])


class Record(dict[str, Any]):
    """A checked record. To look for a field that it lacks is refused, as a field of another kind was."""

    def __init__(self, fields: Mapping[str, Any], refuse: Refuse) -> None:
        super().__init__(fields)
        self._refuse = refuse

    def __missing__(self, key: str) -> Any:
        raise self._refuse(f"it lacks {key}")


def read(data: bytes, kinds: Mapping[str, Kind], refuse: Refuse) -> Record:
    """The record that ``data`` holds; fields that ``kinds`` does not name are left out.

    Raises:
        Refusal: what ``refuse`` makes of the reason, where ``data`` is no JSON object or a field is of another kind.
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise refuse(f"{type(error).__name__}: {error}") from None
    if not isinstance(fields, dict):
        raise refuse(f"it is {type(fields).__name__}, wanted an object")
    for key, is_kind in kinds.items():
        if key in fields and not is_kind(fields[key]):
            raise refuse(f"{key} is {fields[key]!r:.80}")
    return Record({key: fields[key] for key in kinds if key in fields}, refuse)
