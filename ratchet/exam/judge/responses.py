"""Answers of the values child: data from a process that executes a candidate's program, checked field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ratchet.process.sandbox.folder import read_file
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
        return records.read(read_file(path, ANSWER_BYTES), _KINDS, _no_answer)
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
