"""What the values child answers: data from a process that executes a candidate's program.

Answers are checked field by field. Arrays are of limited size, and no Python code is run for them.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.process import paths
from ratchet.values import control, records
from ratchet.values.records import Record
from ratchet.values.status import Refusal, Status

ANSWER_BYTES = 64 << 20
"""The most that is read of an answer."""


def answer_in(path: Path) -> Record:
    """What a values child left, every field checked.

    Raises:
      Refusal: ``CANNOT_VERIFY`` where that is no answer.
    """
    try:
        return records.read(paths.read(path, ANSWER_BYTES), _KINDS, _no_answer)
    except (OSError, ValueError) as error:
        raise _no_answer(str(error)) from None


def passed(answer: Record, prefix: str = "") -> Record:
    """``answer``, if that is a pass.

    Raises:
      Refusal: with the answer's status and its message behind ``prefix``.
    """
    if answer["status"] != Status.PASS.name:
        raise Refusal(Status[answer["status"]], prefix + answer["message"])
    return answer


class Arrays(dict[str, Any]):
    """Arrays by name. To look for one that is not there is refused."""

    def __missing__(self, key: str) -> Any:
        raise _no_arrays(f"there is no {key}")


def read_arrays(path: Path, limit: int) -> Mapping[str, Any]:
    """The arrays of a ``.npz`` file in a folder that a child can write, ``limit`` bytes of them at most.

    Raises:
        Refusal: ``CANNOT_VERIFY`` where it is not there, or no such file.
    """
    import numpy as np

    try:
        data = paths.read(path, limit)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > limit:
            raise ValueError(f"it unpacks to {size} bytes")
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            return Arrays({name: stored[name] for name in stored.files})
    except Exception as error:  # archives and headers that are damaged raise nearly anything
        raise _no_arrays(f"{type(error).__name__}: {error}") from None


def _no_arrays(what: str) -> Refusal:
    return Refusal(Status.CANNOT_VERIFY, f"the process that executes for values left no usable arrays: {what:.200}")


def _no_answer(why: str) -> Refusal:
    return Refusal(Status.CANNOT_VERIFY, f"the process that executes for values left no usable answer: {why:.200}")


def _is_control(value: Any) -> bool:
    try:
        control.decode(value)
    except ValueError:
        return False
    return True


_KINDS = {
    "status": records.is_status,
    "message": records.is_text,
    "seconds": records.is_seconds,
    "worst": records.is_real,
    "rms": records.is_real,
    "floor_rms": records.is_real,
    "unasked": records.is_real,
    "rows": records.is_count,
    "of_rows": records.is_count,
    "flops": records.is_real,
    "same": records.is_truth,
    "module_version": records.is_count,
    "modules": records.is_texts,
    "is_steered": records.is_truth,
    "code_sha256": records.is_text,
    "operations": records.is_texts,
    "control": _is_control,
}
"""Fields of an answer."""
