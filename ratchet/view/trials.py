"""The self-test as a person reads it: a table, both rates, and what was left out and why. Also as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from ratchet.values.trial import Trial
from ratchet.view.text import clean, columns

_HEADINGS = ("", "cheat", "kind", "expected", "got", "defence")
_WIDEST = 34


def trials_table(trials: Sequence[Trial], *, left_out: int, seconds: float) -> str:
    """All cheats, one line each, ``!`` before one that ended otherwise than it has to; then both rates.

    Defences in parentheses are those that the entry names: its outcome does not say which of them it was.
    """
    attacks = [one for one in trials if one.group != "honest"]
    honest = [one for one in trials if one.group == "honest"]
    parts = []
    if attacks:
        parts.append("\n".join(columns([_HEADINGS, *map(_cells, attacks)])))
    refused = [one for one in honest if not one.as_expected]
    parts += [f"! {one.name} is honest and ended as {one.got}: {clean(one.reason)}" for one in refused]
    parts += [
        f"! {one.name} ({', '.join(one.wanted)}): {clean(one.reason)}"
        for one in attacks
        if not one.as_expected and not one.skipped
    ]
    skipped = [one for one in trials if one.skipped]
    parts += [f"skipped: {one.name}, because {clean(one.reason)}" for one in skipped]
    parts.append(rates(trials))
    if left_out:
        parts.append(f"{left_out} entries of the corpus were not asked for")
    parts.append(f"{seconds:.0f} s")
    return "\n".join(parts)


def rates(trials: Sequence[Trial]) -> str:
    """Both rates, in words."""
    judged = [one for one in trials if not one.skipped]
    attacks = [one for one in judged if one.group != "honest"]
    honest = [one for one in judged if one.group == "honest"]
    kinds = len({one.kind for one in attacks})
    caught, passed = sum(one.as_expected for one in attacks), sum(one.as_expected for one in honest)
    skipped = len(trials) - len(judged)
    said = (
        f"cheats caught: {caught} of {len(attacks)}, of {kinds} kinds; honest kernels passed: {passed} of {len(honest)}"
    )
    return f"{said}; skipped: {skipped}" if skipped else said


def trials_json(trials: Sequence[Trial], *, left_out: int, seconds: float) -> str:
    """The same as one JSON document."""
    judged = [one for one in trials if not one.skipped]
    groups = {"cheats": [one for one in judged if one.group != "honest"]}
    groups["honest"] = [one for one in judged if one.group == "honest"]
    document = {
        "schema_version": 1,
        "seconds": seconds,
        "left_out": left_out,
        "rates": {
            name: {"as_expected": sum(one.as_expected for one in group), "of": len(group)}
            for name, group in groups.items()
        },
        "trials": [asdict(one) | {"skipped": one.skipped, "as_expected": one.as_expected} for one in trials],
    }
    return json.dumps(document, indent=1) + "\n"


def _cells(one: Trial) -> tuple[str, ...]:
    mark = "" if one.as_expected else "-" if one.skipped else "!"
    defence = one.defence or ("none" if one.seen else f"({', '.join(one.wanted)})")
    cells = (mark, one.name, one.kind, ", ".join(one.expected), one.got or "skipped", defence)
    return tuple(clean(cell, _WIDEST) for cell in cells)
