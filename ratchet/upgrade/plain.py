"""What the two processes of `ratchet upgrade-check` say to each other, as plain data. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.exam.candidate.target import Case, Target
from ratchet.values import ArraySpec

REQUEST, FAILED = "request.json", "failed.json"


def side_name(number: int) -> str:
    """The file in which a side says what is known of the target of that number."""
    return f"side-{number}.json"


def request_of(target: Target, case: Case, text: str) -> dict[str, Any]:
    """One case of a target; ``text`` is the target as the user wrote it."""
    title = f"{target} [{case.name}]" if case.name else str(target)
    return {
        "text": text,
        "title": title,
        "name": case.name,
        "inputs": [{"shape": list(spec.shape), "dtype": spec.dtype} for spec in case.inputs],
        "generator": case.generator,
        "options": dict(case.options),
        "chip": case.chip,
    }


def case_of(asked: Mapping[str, Any]) -> Case:
    """The case of a request."""
    return Case(
        name=asked["name"],
        inputs=tuple(ArraySpec(shape=tuple(one["shape"]), dtype=one["dtype"]) for one in asked["inputs"]),
        generator=asked["generator"],
        options=asked["options"],
        chip=asked["chip"],
    )
