"""What this machine can do, as a person reads it and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ratchet.view.text import clean

_NARROW = 60


class Health(Enum):
    """How much is lost."""

    OK = "ok"
    LESS = "less"
    """Something is weaker or left out; kernels are judged all the same."""
    MISSING = "missing"
    """No kernel can be judged."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    health: Health
    what: str
    todo: str = ""
    """What to do about it; ``""`` where there is nothing to do."""


def verdict_of(findings: Sequence[Finding]) -> str:
    """One sentence over all of them."""
    if missing := [one.name for one in findings if one.health is Health.MISSING]:
        return f"no kernel can be judged here: {', '.join(missing)}"
    less = [one.name for one in findings if one.health is Health.LESS]
    return f"kernels can be judged here; less than there could be: {', '.join(less)}" if less else "all is well"


def doctor_text(findings: Sequence[Finding], *, width: int | None = None, colour: bool = False) -> str:
    """A line for each finding, what to do below it, and the sentence over all."""
    wide = max(len(one.name) for one in findings)
    lines = []
    for one in findings:
        mark = _marked(one.health, colour)
        said = _wrapped(f"{one.name:<{wide}}  {clean(one.what)}", width, under=wide + 2, taken=9)
        lines += [f"{mark}  {said[0]}", *(f"         {line}" for line in said[1:])]
        if one.todo:
            under = " " * (wide + 11 if width is None or width >= _NARROW else 9)
            lines += [f"{under}{line}" for line in _wrapped(f"-> {clean(one.todo)}", width, under=3, taken=len(under))]
    return "\n".join([*lines, verdict_of(findings)])


def doctor_document(findings: Sequence[Finding]) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "can_judge": all(one.health is not Health.MISSING for one in findings),
        "findings": [
            {"name": one.name, "health": one.health.value, "what": one.what, "todo": one.todo or None}
            for one in findings
        ],
    }


def _marked(health: Health, colour: bool) -> str:
    word = f"{health.value:<7}"
    code = {Health.OK: "32", Health.LESS: "33", Health.MISSING: "31"}[health]
    return f"\x1b[{code}m{word}\x1b[0m" if colour else word


def _wrapped(text: str, width: int | None, *, under: int, taken: int) -> list[str]:
    if width is None:
        return [text]
    indent = " " * (under if width >= _NARROW else 2)
    return textwrap.wrap(text, max(20, width - taken), subsequent_indent=indent, break_on_hyphens=False) or [text]
