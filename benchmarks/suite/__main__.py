"""Prefill and decoding at the shapes of named models, one chip and four, in tokens per second and per dollar; modelled.

    python -m benchmarks.suite [--quick] [--out FOLDER | --report] [--only TABLE ...] [--json FILE]

Attention alone, all layers of the model: the matrix products around it, sampling and the host are left out, so the
tokens per second are what attention would allow by itself. Shapes come from ``data/models.json``, prices from
``data/prices.json`` (each with its source and date). ``x floor`` is over the time of the cache's bytes at the
bandwidth that DMAs reach, on the chips of the row.

At short contexts four chips lose to one, because of the launch barrier and, decoding, of communication at the end. The
context from which on they win is bracketed by powers of two and then halved.

Also here, because ``docs/optimizing-for-the-v5e-memory-hierarchy.md`` shows them: block sizes and head dimensions,
decoding against its floor (``benchmarks.decode``), what plain XLA can hold
(``baseline_mha.py``) and the ledger's kept experiments. Tables are printed; ``suite.json`` and plots (SVG) go to
FOLDER, ``plots`` by default. ``--report`` writes them to ``docs/figures`` and puts the tables into that document.
``--only`` computes some tables anew, or none, and takes the others from the ``suite.json`` that is there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.lib.command import command
from benchmarks.lib.plots import Point, plot_crossover, plot_programs, plot_roofline
from benchmarks.lib.table import show_all
from benchmarks.suite import report
from benchmarks.suite.models import MODELS, PRICES, Rows
from benchmarks.suite.tables import TABLES, compute
from ratchet.tpu.chips import V5E

OTHERS = {"chip": "what the model takes the chip to be", "history": "experiments that were kept"}


def main() -> None:
    parser = command(__doc__, quick="the first model only")
    parser.add_argument("--out", type=Path, default=Path("plots"), metavar="FOLDER")
    parser.add_argument("--report", action="store_true", help="write the figures and tables of the report in docs/")
    parser.add_argument("--only", nargs="*", choices=TABLES, metavar="TABLE", help=", ".join(TABLES))
    options = parser.parse_args()
    if options.report and options.quick:
        parser.error("--report needs all models: leave out --quick")
    out = report.FIGURES if options.report else options.out
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    models = MODELS[:1] if options.quick else MODELS
    stored = out / "suite.json"
    known = json.loads(stored.read_text()) if options.only is not None and stored.exists() else {}
    made, failed = compute(models, min(2, os.cpu_count() or 1), TABLES if options.only is None else options.only)
    tables = known | made
    tables["chip"] = report.chip_rows()
    tables["history"] = report.history(report.LEDGER.read_text(encoding="utf-8"))
    stored.write_text(json.dumps(tables, indent=1) + "\n")
    titles = {name: title for name, (title, _, _) in TABLES.items()} | OTHERS
    show_all({titles[name]: rows for name, rows in tables.items()}, json_file=options.json)
    for price in PRICES:
        dollars = f"{price['dollars_per_chip_hour']} $/chip-h"
        print(f"{price['chip']} {price['what']}: {dollars}, {price['source']} ({price['date']})")
    plots: dict[str, Callable[[Rows], None]] = {
        "crossover": lambda rows: plot_crossover(rows, out / "crossover.svg", "decode, batch 1"),
        "prefill crossover": lambda rows: plot_crossover(rows, out / "prefill-crossover.svg", "prefill, one prompt"),
        "roofline": lambda rows: plot_roofline([Point(**row) for row in rows], V5E, out / "roofline.svg"),
        "prefill": lambda rows: plot_programs(rows, "tokens/s", out / "prefill.svg"),
        "decoding": lambda rows: plot_programs([r for r in rows if r["batch"] == 8], "tokens/s", out / "decoding.svg"),
    }
    for name in plots.keys() & tables.keys():
        plots[name](tables[name])
    if options.report and not failed:
        report.REPORT.write_text(report.rendered(report.REPORT.read_text(), tables))
    print(f"written to {out}/ in {(time.monotonic() - began) / 60:.1f} minutes")
    if failed:
        raise SystemExit("\n".join(["not made:", *failed]))


if __name__ == "__main__":
    main()
