"""Seconds of each step of a verdict of the naive kernel at BQ=1024, BKV=512: alone, and as a point of a sweep.

    python -m benchmarks.verdict [--json FILE]

``first`` also pays for the references of the problem, once per clone; ``alone`` is what ``./ratchet.sh`` costs from
then on; ``sweep`` keeps the compiler and the values child from one point to the next. Measured here and now.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.lib.command import command
from benchmarks.lib.sources import ROOT, edited
from benchmarks.lib.table import show
from prepare import judge
from ratchet.chips import V5E
from ratchet.judge.request import Request
from ratchet.judge.workers import Workers
from ratchet.values import Conditions, Verdict

POINTS = ((1024, 512), (1024, 512), (512, 512), (1024, 1024))


def point(root: Path, source: str, bq: int, bkv: int, workers: Workers | None = None) -> tuple[Verdict, float]:
    """Judge one point; returns the verdict and the wall seconds around it."""
    kernel = root / "kernel.py"
    kernel.write_text(edited(source, BQ=bq, BKV=bkv))
    conditions = Conditions(evaluator="v5e-model", chip="v5e", compiler="", seal="", problem="")
    start = time.monotonic()
    request = Request(kernel=kernel, root=root, kernel_rel="kernel.py", conditions=conditions)
    verdict = judge(request, workers=workers)
    return verdict, time.monotonic() - start


def main() -> None:
    options = command(__doc__).parse_args()
    source = (ROOT / "examples" / "naive_attention.py").read_text()
    columns: dict[str, tuple[Verdict, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        columns["first"] = point(root, source, 1024, 512)
        columns["alone"] = point(root, source, 1024, 512)
        with Workers(V5E, keep=True) as workers:
            for number, (bq, bkv) in enumerate(POINTS):
                name = f"sweep {number}: {bq}/{bkv}"
                columns[name] = point(root, source, bq, bkv, workers)
    names = [step.name for step in columns["first"][0].steps]
    rows = []
    for name in names:
        seconds = {
            column: round(next((s.seconds for s in verdict.steps if s.name == name), 0.0), 2)
            for column, (verdict, _) in columns.items()
        }
        rows.append({"step": name, **seconds})
    rows.append({"step": "whole verdict", **{column: round(wall, 2) for column, (_, wall) in columns.items()}})
    rows.append({"step": "status", **{column: verdict.status.name for column, (verdict, _) in columns.items()}})
    show("seconds of a verdict, measured here", rows, json_file=options.json)


if __name__ == "__main__":
    main()
