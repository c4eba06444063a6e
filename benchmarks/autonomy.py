"""How far the tool gets without anybody: from a naive kernel by its own advice, so many experiments.

    python -m benchmarks.autonomy [--turns 40] [--followed N] [--budget 300] [--from FILE]… [--in FOLDER] [--json FILE]

Everything goes through the public command line, in a repository of its own: `advise --apply 1`, then one experiment,
which is judged, kept or reverted. It ends where no edit is modelled as faster, nor two of those that alone lose little.
With --followed, `search --how edits` breeds edits after so many experiments, and a tenth of all is left to follow
advice again. Repositories in FOLDER stay, and the same command goes on with them: what was done is in their ledgers.
Without --from: the naive attention kernel, and the first versions of others. The floor is what the roofline allows:
compulsory FLOPs and bytes at the chip's peaks. Most of the time goes into references in float64.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.lib.command import command, say
from benchmarks.lib.table import show_all
from benchmarks.lib.turns import KERNEL, Row, asked, experiment, starts
from ratchet.values import Decision
from tests.workspaces import Workspace

_LAST = 0.1
"""Share of the experiments that follow advice after edits were bred."""


def first_advice(space: Workspace, budget_s: int) -> Row | None:
    """The first advice, made in the file; None once every edit was modelled and none is faster."""
    while not (found := asked(space, "advise", KERNEL, "--json", "--budget", str(budget_s)))["advice"]:
        if not found["not_modelled"]:
            return None
    (advice,) = asked(space, "advise", KERNEL, "--json", "--apply", "1")["advice"]
    return dict(advice)


def follow(space: Workspace, start: str, until: int, budget_s: int) -> None:
    """The first advice, tried; until none is left, or so many experiments have a row."""
    while done(space) < until and (advice := first_advice(space, budget_s)) is not None:
        outcome, score = experiment(space, advice["message"])
        if not outcome.get("decision"):
            raise RuntimeError(f"{advice['title']} was not judged: {outcome}")
        say(f"{start} {done(space)}: {advice['title']}: {score.get('latency_ms')} ms, {outcome['decision']}")


def done(space: Workspace) -> int:
    """How many experiments have a row, the baseline aside."""
    return len(space.rows()) - 1


def course(start: str, source: str, folder: Path, *, turns: int, followed: int, budget_s: int) -> tuple[Row, list[Row]]:
    """How far it gets from one kernel file, and all experiments."""
    space = Workspace(root=folder / start.removesuffix(".py"))
    if not space.ledger.exists():
        space = Workspace.new(space.root, source)
        experiment(space, "baseline")
    bred = sum(row.note.startswith("search:") for row in space.rows())
    if not bred:
        follow(space, start, followed, budget_s)
    if followed < turns and (left := turns - int(_LAST * turns) - done(space)) > 0:
        trials = str(bred + left + 1)  # the start is one, which has its row
        found = asked(space, "search", KERNEL, "--how", "edits", "--budget", trials, "--json")
        say(f"{start} {done(space)}: bred {len(found['trials'])}")
    follow(space, start, turns, budget_s)
    made: list[Row] = [
        {
            "turn": turn,
            "what": row.note.split("\\n")[0].splitlines()[0],
            "ms": float(row.median_ms) if row.median_ms else None,
            "": row.decision if row.decision == Decision.KEPT else row.status,
        }
        for turn, row in enumerate(space.rows())
    ]
    baseline, *others = space.rows()
    if not baseline.median_ms:
        raise RuntimeError(f"{start} is {baseline.status} as it is: {baseline.note}")
    kept = [float(row.median_ms) for row in others if row.decision == Decision.KEPT]
    first, util = float(baseline.median_ms), float(baseline.util_pct)
    best, floor = min([first, *kept]), first * util / 100
    end = {
        "kernel": start,
        "first ms": first,
        "floor ms": floor,
        "turns": len(made) - 1,
        "kept": len(kept),
        "last ms": best,
        "of the way to the floor": f"{(first - best) / (first - floor):.0%}",
    }
    return end, made


def main() -> None:
    """Follow advice from each start."""
    parser = command(__doc__)
    parser.add_argument("--turns", type=int, default=40, metavar="N", help="at most so many from each; default 40")
    parser.add_argument("--followed", type=int, metavar="N", help="then breed edits; default: never")
    parser.add_argument(
        "--budget", type=int, default=300, metavar="SECONDS", help="of modelling edits, each time; default 300"
    )
    parser.add_argument(
        "--from", dest="starts", action="append", type=Path, metavar="FILE", help="begin with this file"
    )
    parser.add_argument("--in", dest="folder", type=Path, metavar="FOLDER", help="keep the repositories there")
    options = parser.parse_args()
    chosen = {path.name: path.read_text() for path in options.starts} if options.starts else starts()
    with tempfile.TemporaryDirectory(prefix="autonomy-") as own:
        folder: Path = options.folder or Path(own)
        limits = {
            "turns": options.turns,
            "followed": options.turns if options.followed is None else options.followed,
            "budget_s": options.budget,
        }
        courses = {name: course(name, source, folder, **limits) for name, source in chosen.items()}
    turns = {f"Turns from {name}": made for name, (_, made) in courses.items()}
    show_all({"How far it gets": [end for end, _ in courses.values()], **turns}, json_file=options.json)


if __name__ == "__main__":
    main()
