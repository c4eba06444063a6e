"""Captured calls of a function, as cases to tune it for."""

from __future__ import annotations

from pathlib import Path

from ratchet.exam.candidate import arrays
from ratchet.exam.candidate.target import Case, Target
from ratchet.process import paths
from ratchet.tune.capture import read
from ratchet.values.status import Refusal, Status


def cases(path: Path, target: Target) -> tuple[Case, ...]:
    """The calls of ``target`` in a file, the most frequent first. ``others`` holds ``arguments`` and ``calls``.

    Raises:
      Refusal: ``NOT_FOUND`` without such a file or call, ``USAGE`` for a file that is something else.
    """
    if not paths.is_file(path):
        raise Refusal(Status.NOT_FOUND, f"there is no file {path}: ratchet.capture writes one")
    calls = [call for call in read(path).values() if call["function"] == str(target)]
    usable = [call for call in calls if "inputs" in call]
    if not usable:
        others = sorted({str(call["function"]) for call in read(path).values()})
        why = calls[0]["not captured"] if calls else f"it has calls of {', '.join(others)[:200] or 'nothing'}"
        raise Refusal(Status.NOT_FOUND, f"{path} has no call of {target} that can be tuned: {why}")
    return tuple(
        Case(
            name=", ".join([*call["inputs"], *(f"{name}={value!r}" for name, value in call["options"].items())]),
            inputs=tuple(map(arrays.array, call["inputs"])),
            options=call["options"],
            others={"arguments": tuple(call["arguments"]), "calls": call["calls"]},
        )
        for call in sorted(usable, key=lambda call: -int(call["calls"]))
    )
