"""How far `ratchet advise` gets without anybody: the first advice is tried, turn after turn, from a naive kernel.

    python -m benchmarks.autonomy [--turns 40] [--budget 300] [--from FILE]… [--json FILE]

Everything goes through the public command line, in a throwaway repository: `advise --apply 1`, then one experiment,
which is judged, kept or reverted. It ends where no edit is modelled as faster, nor two of those that alone lose little.
Without --from: the naive attention kernel, and the first versions of others. The floor is what the roofline allows:
compulsory FLOPs and bytes at the chip's peaks. Most of the time goes into references in float64.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.lib.command import command, say
from benchmarks.lib.table import show_all
from benchmarks.lib.turns import KERNEL, Row, asked, experiment, starts, word
from tests.workspaces import Workspace


def first_advice(space: Workspace, budget_s: int) -> Row | None:
    """The first advice, made in the file; None once every edit was modelled and none is faster."""
    while True:
        found = asked(space, "advise", KERNEL, "--json", "--budget", str(budget_s))
        if found["advice"]:
            (advice,) = asked(space, "advise", KERNEL, "--json", "--apply", "1")["advice"]
            return dict(advice)
        if not found["not_modelled"]:
            return None


def follow(space: Workspace, turns: int, budget_s: int) -> Iterator[Row]:
    """The first advice, tried; until none is left."""
    for number in range(1, turns + 1):
        if (advice := first_advice(space, budget_s)) is None:
            return
        outcome, score = experiment(space, advice["message"])
        if not outcome.get("decision"):
            raise RuntimeError(f"{advice['title']} was not judged: {outcome}")
        yield {
            "turn": number,
            "advice": advice["title"],
            "predicted ms": advice["predicted_ms"],
            "got ms": score.get("latency_ms"),
            "": word(outcome),
        }


def course(start: str, source: str, turns: int, budget_s: int) -> tuple[Row, list[Row]]:
    """How far it gets from one kernel file, and all turns."""
    with tempfile.TemporaryDirectory(prefix="autonomy-") as folder:
        space = Workspace.new(Path(folder, "repository"), source)
        outcome, score = experiment(space, "baseline")
        if not score:
            raise RuntimeError(f"{start} has no score: {outcome}")
        made = []
        for turn in follow(space, turns, budget_s):
            made.append(turn)
            say(f"{start} {turn['turn']}: {turn['advice']}: {turn['got ms'] or ''} ms, {turn['']}")
    kept = [turn["got ms"] for turn in made if turn[""] == "kept"]
    first, floor = score["latency_ms"], score["latency_ms"] * score["util_pct"] / 100
    last = min([first, *filter(None, kept)])
    end = {
        "kernel": start,
        "first ms": first,
        "floor ms": floor,
        "turns": len(made),
        "kept": len(kept),
        "last ms": last,
        "of the way to the floor": f"{(first - last) / (first - floor):.0%}",
    }
    return end, made


def main() -> None:
    """Follow advice from each start."""
    parser = command(__doc__)
    parser.add_argument("--turns", type=int, default=40, metavar="N", help="at most so many from each; default 40")
    parser.add_argument(
        "--budget", type=int, default=300, metavar="SECONDS", help="of modelling edits, each time; default 300"
    )
    parser.add_argument(
        "--from", dest="starts", action="append", type=Path, metavar="FILE", help="begin with this file"
    )
    options = parser.parse_args()
    chosen = {path.name: path.read_text() for path in options.starts} if options.starts else starts()
    courses = {name: course(name, source, options.turns, options.budget) for name, source in chosen.items()}
    turns = {f"Turns from {name}": made for name, (_, made) in courses.items()}
    show_all({"How far it gets": [end for end, _ in courses.values()], **turns}, json_file=options.json)


if __name__ == "__main__":
    main()
