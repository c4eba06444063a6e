"""How many suggestions of `ratchet advise` are kept when they are tried, and how far each prediction was off.

    python -m benchmarks.advice [--most 10] [--budget 300] [--from FILE]… [--json FILE]

For each kernel a throwaway repository, its baseline, and `advise`. Each suggestion is then made in a copy of that
repository and judged in full, with nothing remembered (`--fresh`): kept or not, and its latency beside the predicted
one. Without --from: the naive attention kernel, and the first versions of others.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.lib.command import command, say
from benchmarks.lib.table import show_all
from benchmarks.lib.turns import KERNEL, Row, asked, experiment, starts, word
from tests.workspaces import Workspace


def tried(start: str, source: str, most: int, budget_s: int) -> Iterator[Row]:
    """Every suggestion for one kernel file, each from that file; one without a title where there is none."""
    with tempfile.TemporaryDirectory(prefix="advice-") as folder:
        space = Workspace.new(Path(folder, "repository"), source)
        outcome, score = experiment(space, "baseline")
        if not score:
            raise RuntimeError(f"{start} has no score: {outcome}")
        document = asked(space, "advise", KERNEL, "--json", "--most", str(most), "--budget", str(budget_s))
        others = f"{len(document['tried'])} modelled as no faster, {document['not_modelled']} not modelled"
        say(f"{start}: {len(document['advice'])} suggestions, {others}")
        for advice in document["advice"]:
            number = advice["number"]
            copy = space.copy(Path(folder, f"copy-{number}"))
            asked(copy, "advise", KERNEL, "--json", "--apply", str(number))
            outcome, score = experiment(copy, advice["message"], "--fresh")
            predicted, got = advice["predicted_ms"], score.get("latency_ms")
            yield {
                "kernel": start,
                "suggestion": advice["title"],
                "now ms": document["modelled_ms"],
                "predicted ms": predicted,
                "got ms": got,
                "off %": None if got is None else abs(got / predicted - 1) * 100,
                "values checked": "yes" if advice["values_checked"] else "",
                "": word(outcome),
            }
            shutil.rmtree(copy.root)


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
    parser.add_argument("--most", type=int, default=10, metavar="N", help="of each kernel; default 10")
    parser.add_argument(
        "--budget", type=int, default=300, metavar="SECONDS", help="of modelling edits, each kernel; default 300"
    )
    parser.add_argument("--from", dest="starts", action="append", type=Path, metavar="FILE", help="of this kernel file")
    options = parser.parse_args()
    chosen = {path.name: path.read_text() for path in options.starts} if options.starts else starts()
    made: dict[str, list[Row]] = {}
    for name, source in chosen.items():
        made[name] = []
        for row in tried(name, source, options.most, options.budget):
            made[name].append(row)
            say(f"{name}: {row['suggestion']}: {row['predicted ms']} ms predicted, {row['got ms']} ms, {row['']}")
    every = [row for rows in made.values() for row in rows]
    totals = [*(summary(name, rows) for name, rows in made.items()), summary("all", every)]
    show_all({"Suggestions": every, "How many were kept": totals}, json_file=options.json)


if __name__ == "__main__":
    main()
