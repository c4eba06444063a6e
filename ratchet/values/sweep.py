"""One point of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ratchet.values.verdict import Verdict

Literal = int | float | bool | str | None
Point = Mapping[str, Literal]
"""A value for every knob, by name. Empty: the file as it is."""


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What came of one version of a kernel file."""

    point: Point
    verdict: Verdict
    """``UNCHECKED`` where it was modelled, ``PASS`` where its values were checked, too."""
    seconds: float
