"""How many suggestions of `ratchet advise` are kept when they are tried, and how far each prediction was off.

    python -m benchmarks.advice [--most 10] [--rounds 2] [--budget 300] [--from FILE]… [--json FILE]

For each kernel a throwaway repository, its baseline, and `advise`. Each suggestion is then made in a copy of that
repository and judged in full, with nothing remembered (`--fresh`): kept or not, and its latency beside the predicted
one. The next round is the same for the fastest of those that were kept. Without --from: the naive attention kernel, and
the first versions of others.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.lib.command import command, say
from benchmarks.lib.table import show_all
from benchmarks.lib.turns import KERNEL, Row, asked, experiment, starts, word
from tests.workspaces import Workspace


def tried(start: str, source: str, most: int, rounds: int, budget_s: int) -> Iterator[Row]:
    """Every suggestion for one kernel file and for the versions that it becomes, each from its version."""
    with tempfile.TemporaryDirectory(prefix="advice-") as folder:
        space = Workspace.new(Path(folder, "1", "repository"), source)
        outcome, score = experiment(space, "baseline")
        if not score:
            raise RuntimeError(f"{start} has no score: {outcome}")
        for number in range(1, rounds + 1):
            rows = []
            for row, copy in _each(start, number, space, most, budget_s):
                rows.append((row, copy))
                yield row
            kept = [(row["got ms"], at) for at, (row, _) in enumerate(rows) if row[""] == "kept"]
            if not kept:
                return
            space = rows[min(kept)[1]][1]


def _each(start: str, number: int, space: Workspace, most: int, budget_s: int) -> Iterator[tuple[Row, Workspace]]:
    """Every suggestion for the version in ``space``, made and judged in a copy."""
    document = asked(space, "advise", KERNEL, "--json", "--most", str(most), "--budget", str(budget_s))
    others = f"{len(document['tried'])} modelled as no faster, {document['not_modelled']} not modelled"
    say(f"{start}: {len(document['advice'])} suggestions, {others}")
    for advice in document["advice"]:
        copy = space.copy(space.root.parent.parent / f"{number + 1}-{advice['number']}" / "repository")
        asked(copy, "advise", KERNEL, "--json", "--apply", str(advice["number"]))
        outcome, score = experiment(copy, advice["message"], "--fresh")
        predicted, got = advice["predicted_ms"], score.get("latency_ms")
        row = {
            "kernel": start,
            "round": number,
            "suggestion": advice["title"],
            "now ms": document["modelled_ms"],
            "predicted ms": predicted,
            "got ms": got,
            "off %": None if got is None else abs(got / predicted - 1) * 100,
            "values checked": "yes" if advice["values_checked"] else "",
            "": word(outcome),
        }
        yield row, copy


def summary(start: str, rows: list[Row]) -> Row:
    """Of one kernel, or of all."""
    off = [row["off %"] for row in rows if row["off %"] is not None]
    return {
        "kernel": start,
        "suggestions": len(rows),
        "kept": sum(row[""] == "kept" for row in rows),
        "most off %": max(off, default=None),
        "within 2 %": sum(one <= 2 for one in off),
    }


def main() -> None:
    """Try what is suggested."""
    parser = command(__doc__)
    parser.add_argument("--most", type=int, default=10, metavar="N", help="of each version; default 10")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="versions of each kernel; default 2")
    parser.add_argument(
        "--budget", type=int, default=300, metavar="SECONDS", help="of modelling edits, each version; default 300"
    )
    parser.add_argument("--from", dest="starts", action="append", type=Path, metavar="FILE", help="of this kernel file")
    options = parser.parse_args()
    chosen = {path.name: path.read_text() for path in options.starts} if options.starts else starts()
    made: dict[str, list[Row]] = {}
    for name, source in chosen.items():
        made[name] = []
        for row in tried(name, source, options.most, options.rounds, options.budget):
            made[name].append(row)
            say(f"{name}: {row['suggestion']}: {row['predicted ms']} ms predicted, {row['got ms']} ms, {row['']}")
    every = [row for rows in made.values() for row in rows]
    totals = [*(summary(name, rows) for name, rows in made.items()), summary("all", every)]
    show_all({"Suggestions": every, "How many were kept": totals}, json_file=options.json)


if __name__ == "__main__":
    main()
