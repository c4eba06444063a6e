"""Searches beside each other for the same time: values by Optuna's estimator, edits bred, the first advice followed.

    python -m benchmarks.strategies [--seconds 240] [--from FILE]… [--json FILE]

Everything goes through the public command line, each search in a throwaway repository of its own. What is under way
when the time is over is finished. Without --from: naive attention, and the first versions of layernorm backward and of
the int8 product.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.lib.command import command, say
from benchmarks.lib.table import show
from benchmarks.lib.turns import KERNEL, Row, asked, experiment, starts
from tests.workspaces import Workspace

KERNELS = ("naive_attention.py", "layernorm_backward.py", "int8_matmul.py")
_TRIALS = 1000
"""More than fit into the time."""


def searched(space: Workspace, how: str, seconds: int) -> tuple[int, float | None]:
    """One ``search``: trials, and the best latency in ms."""
    words = ("search", KERNEL, "--how", how, "--time", f"{seconds}s", "--budget", str(_TRIALS), "--json")
    found = asked(space, *words, "--patience", str(_TRIALS))
    latencies = [one["latency_ms"] for one in found.get("trials", ()) if one["latency_ms"]]
    return len(found.get("trials", ())), min(latencies, default=None)


def followed(space: Workspace, seconds: int) -> tuple[int, float | None]:
    """The first advice, again and again: experiments, and the latency of the last one that was kept, in ms."""
    end, turns, best = time.monotonic() + seconds, 0, None
    while (left := end - time.monotonic()) > 0:
        found = asked(space, "advise", KERNEL, "--json", "--budget", str(max(1, int(left))))
        if not found["advice"]:
            if not found["not_modelled"]:
                break
            continue
        (advice,) = asked(space, "advise", KERNEL, "--json", "--apply", "1")["advice"]
        outcome, score = experiment(space, advice["message"])
        turns += 1
        if outcome.get("decision") == "kept":
            best = score["latency_ms"]
    return turns, best


def row(name: str, source: str, what: str, search: Callable[[Workspace], tuple[int, float | None]]) -> Row:
    """What one search finds from one kernel file."""
    with tempfile.TemporaryDirectory(prefix="strategies-") as folder:
        space = Workspace.new(Path(folder, "repository"), source)
        outcome, score = experiment(space, "baseline")
        if not score:
            raise RuntimeError(f"{name} has no score: {outcome}")
        begun = time.monotonic()
        trials, best = search(space)
        spent, first = time.monotonic() - begun, score["latency_ms"]
    floor, best = first * score["util_pct"] / 100, min(first, best or first)
    say(f"{name} {what}: {best} ms, {trials} trials")
    return {
        "kernel": name,
        "search": what,
        "trials": trials,
        "seconds": round(spent),
        "first ms": first,
        "best ms": best,
        "floor ms": floor,
        "of the way to the floor": f"{(first - best) / (first - floor):.0%}",
    }


def main() -> None:
    """Each search from each start."""
    parser = command(__doc__)
    parser.add_argument("--seconds", type=int, default=240, metavar="N", help="for each search; default 240")
    parser.add_argument(
        "--from", dest="starts", action="append", type=Path, metavar="FILE", help="begin with this file"
    )
    options = parser.parse_args()
    first = starts()
    given = {path.name: path.read_text() for path in options.starts or ()}
    seconds: int = options.seconds
    searches: dict[str, Callable[[Workspace], tuple[int, float | None]]] = {
        "values, tpe": lambda space: searched(space, "tpe", seconds),
        "edits, bred": lambda space: searched(space, "edits", seconds),
        "first advice": lambda space: followed(space, seconds),
    }
    rows = [
        row(name, source, what, search)
        for name, source in (given or {name: first[name] for name in KERNELS}).items()
        for what, search in searches.items()
    ]
    show(f"The best of {seconds} seconds", rows, json_file=options.json)


if __name__ == "__main__":
    main()
