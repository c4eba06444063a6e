"""``selftest``: the judge tried on the corpus; a table, both rates, and what was left out and why."""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ratchet.commands.options import text_option
from ratchet.process import paths
from ratchet.selftest import corpus as corpora
from ratchet.selftest import run as selftest
from ratchet.values.status import Status
from ratchet.values.trial import Trial
from ratchet.view.document import plain, same
from ratchet.view.text import clean, columns
from ratchet.wiring import JudgeFunction

_HEADINGS = ("", "cheat", "kind", "expected", "got", "defence")
_WIDEST = 34


def selftest_options(parser: argparse.ArgumentParser) -> None:
    """Which entries, and where the results go."""
    parser.add_argument("--quick", action="store_true", help="one cheat of each kind, a dozen honest kernels")
    text_option(parser, "--only", "PATTERN", "entries whose name or kind has this in it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every result to FILE, as JSON")


def selftest_command(
    options: argparse.Namespace, *, root: Path, function: JudgeFunction, say: Callable[[str], None]
) -> int:
    """Judge the corpus and print what became of each of its files."""
    start = time.monotonic()
    corpus = corpora.read(root)
    chosen = selftest.choose(corpus, quick=options.quick, pattern=options.only)
    count = itertools.count(1)

    def done(trial: Trial) -> None:
        mark = "" if trial.as_expected or trial.skipped else "! "
        got = trial.got or "skipped"
        say(f"{mark}{next(count)}/{len(chosen.entries)} {trial.name}: {got} in {trial.seconds:.1f} s")

    trials = selftest.run(corpus, chosen, root=root, judge=function, done=done)
    seconds = time.monotonic() - start
    print(trials_table(trials, left_out=chosen.left_out, seconds=seconds))
    if options.json is not None:
        paths.write(options.json, trials_json(trials, left_out=chosen.left_out, seconds=seconds).encode())
    fine = all(trial.as_expected or trial.skipped for trial in trials)
    return (Status.PASS if fine else Status.SELFTEST_FAILED).exit_code


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
    attacks, honest = _judged(trials)
    kinds = len({one.kind for one in attacks})
    caught, passed = sum(one.as_expected for one in attacks), sum(one.as_expected for one in honest)
    skipped = len(trials) - len(attacks) - len(honest)
    said = (
        f"cheats caught: {caught} of {len(attacks)}, of {kinds} kinds; honest kernels passed: {passed} of {len(honest)}"
    )
    return f"{said}; skipped: {skipped}" if skipped else said


def trials_json(trials: Sequence[Trial], *, left_out: int, seconds: float) -> str:
    """The same as one JSON document."""
    rates_of = {
        name: {"as_expected": sum(one.as_expected for one in group), "of": len(group)}
        for name, group in zip(("cheats", "honest"), _judged(trials), strict=True)
    }
    every = plain(trials, {Trial: {...: (), **same("skipped", "as_expected")}})
    document = {"schema_version": 1, "seconds": seconds, "left_out": left_out, "rates": rates_of, "trials": every}
    return json.dumps(document, indent=1) + "\n"


def _judged(trials: Sequence[Trial]) -> tuple[list[Trial], list[Trial]]:
    """Cheats, and honest kernels."""
    judged = [one for one in trials if not one.skipped]
    return [one for one in judged if one.group != "honest"], [one for one in judged if one.group == "honest"]


def _cells(one: Trial) -> tuple[str, ...]:
    mark = "" if one.as_expected else "-" if one.skipped else "!"
    defence = one.defence or ("none" if one.seen else f"({', '.join(one.wanted)})")
    cells = (mark, one.name, one.kind, ", ".join(one.expected), one.got or "skipped", defence)
    return tuple(clean(cell, _WIDEST) for cell in cells)
