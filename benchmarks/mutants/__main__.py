"""Small faults put into the judge one at a time, and how many of them the tests of their room notice.

    python -m benchmarks.mutants [--rooms ROOM ...] [--sample N] [--seed S] [--again FILE] [--json FILE]

A fault is a comparison or a boundary shifted, a constant changed or multiplied, an operator, ``and`` or a condition
exchanged, a statement, a call or a ``raise`` dropped, an early return. ``--sample`` of each room's are drawn; the room
``known`` holds faults that no test noticed once. Each is put into a copy of the tree, where the tests that run its line
are run up to the first that fails, in a PID namespace of their own (``unshare`` of util-linux, as root). Which lines a
test runs is noted first and kept under ``.ratchet/mutants``. A survivor is printed as a diff; those that no test can
notice are listed with the reason in ``benchmarks/mutants/equivalent.json`` and do not count. ``--again`` tries
the survivors of an earlier run that was written with ``--json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command, say
from benchmarks.lib.table import show_all
from benchmarks.mutants.mutator import Mutant, mutants, sampled
from benchmarks.mutants.reach import choice
from benchmarks.mutants.rooms import KNOWN, ROOMS
from benchmarks.mutants.run import Copy, Outcome

EQUIVALENT = Path(__file__).with_name("equivalent.json")
LIMIT = 0.1
"""Share of a room's mutants that may survive."""
SURVIVORS = "Survivors"


def change(mutant: Mutant, source: str) -> str:
    """The lines that a mutant takes out and puts in, by which it is known when lines have moved."""
    return "\n".join(line for line in mutant.diff(source).splitlines()[2:] if not line.startswith("@@"))


def equivalents() -> dict[tuple[str, str], str]:
    """Why no test can notice a fault, by file and change."""
    return {(one["file"], one["change"]): one["reason"] for one in json.loads(EQUIVALENT.read_text())}


def chosen(room: str, tree: Copy, count: int, seed: int, again: set[tuple[str, str]] | None) -> list[Mutant]:
    """The mutants to try: the known ones, a sample of a room's, or the survivors of an earlier run."""
    if room == "known":
        return [one.mutant(tree.source(one.file)) for one in KNOWN]
    files = {file: tree.source(file) for file in ROOMS[room].files(tree.root)}
    everything = [mutant for file, source in files.items() for mutant in mutants(source, file)]
    if again is not None:
        return [m for m in everything if (m.file, change(m, tree.source(m.file))) in again]
    say(f"{room}: {len(everything)} mutants of {len(files)} files")
    return list(sampled(everything, count, seed))


def tried(room: str, tree: Copy, wanted: list[Mutant]) -> Iterator[tuple[Mutant, Outcome]]:
    """Each mutant and its outcome.

    Raises:
        RuntimeError: if a test of the room fails without any fault.
    """
    sources = ROOMS[room].files(tree.root)
    ran = [one for file in ROOMS[room].test_files(tree.root) for one in tree.ran(file, sources)]
    seconds = {one.test: one.seconds for one in ran}
    known = equivalents()
    for number, mutant in enumerate(wanted, start=1):
        source = tree.source(mutant.file)
        tests = choice(mutant, source, ran, children=ROOMS[room].children)
        if (mutant.file, change(mutant, source)) in known or not tests:
            outcome = Outcome()
        else:
            outcome = tree.tried(mutant, tests, sum(seconds[test] for test in tests))
        said = f"killed by {outcome.by}" if outcome.killed else f"SURVIVED\n{change(mutant, source)}"
        place = f"{mutant.file}:{mutant.line} {mutant.what}"
        say(f"{room} {number}/{len(wanted)} {place} ({len(tests)} tests, {outcome.seconds:.0f} s): {said}")
        yield mutant, outcome


def room_tables(
    room: str, outcomes: list[tuple[Mutant, Outcome]], tree: Copy
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A room's line, and its survivors."""
    known = equivalents()
    alive = [(m, change(m, tree.source(m.file))) for m, outcome in outcomes if not outcome.killed]
    survivors = [(m, lines) for m, lines in alive if (m.file, lines) not in known]
    counted = len(outcomes) - (len(alive) - len(survivors))
    line = {
        "room": room,
        "tried": len(outcomes),
        "killed": len(outcomes) - len(alive),
        "by the deadline": sum(outcome.by == "the deadline" for _, outcome in outcomes),
        "equivalent": len(alive) - len(survivors),
        "survived": len(survivors),
        "survived %": 100.0 * len(survivors) / max(counted, 1),
        "seconds": sum(outcome.seconds for _, outcome in outcomes),
    }
    return line, [
        {"room": room, "fault": m.what, "file": m.file, "line": m.line, "change": lines} for m, lines in survivors
    ]


def main() -> int:
    parser = command(__doc__)
    parser.add_argument("--rooms", nargs="*", choices=list(ROOMS), default=list(ROOMS), help="some of the rooms")
    parser.add_argument("--sample", type=int, default=25, metavar="N", help="mutants of each room (25)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the draw (0)")
    parser.add_argument("--again", type=Path, metavar="FILE", help="try the survivors of an earlier run")
    options = parser.parse_args()
    again = None
    if options.again:
        again = {(row["file"], row["change"]) for row in json.loads(options.again.read_text())[SURVIVORS]}
    lines: list[dict[str, Any]] = []
    survivors: list[dict[str, Any]] = []
    tables = {"Mutants": lines, SURVIVORS: survivors}
    with Copy() as tree:
        for room in options.rooms:
            wanted = chosen(room, tree, options.sample, options.seed, again)
            if not wanted:
                continue
            outcomes = list(tried(room, tree, wanted))
            line, more = room_tables(room, outcomes, tree)
            lines.append(line)
            survivors += more
            if options.json:  # after every room, so that an interrupted run leaves what it has
                options.json.write_text(json.dumps(tables, indent=1) + "\n")
    show_all(tables, json_file=options.json)
    return 0 if all(line["survived %"] < 100 * LIMIT for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
