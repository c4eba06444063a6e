"""Prefill and decoding at the shapes of named models, one chip and four, in tokens per second and per dollar; modelled.

    python -m benchmarks.suite [--quick] [--out FOLDER | --report] [--only TABLE ...] [--json FILE]

Attention alone, all layers of the model: the matrix products around it, sampling and the host are left out, so the
tokens per second are what attention would allow by itself. Shapes come from ``data/models.json``, prices from
``data/prices.json`` (each with its source and date). ``x floor`` is over the time of the cache's bytes at the
bandwidth that DMAs reach, on the chips of the row.

At short contexts four chips lose to one, because of the launch barrier and, decoding, of communication at the end. The
context from which on they win is bracketed by powers of two and then halved.

Also here, because ``docs/optimizing-for-the-v5e-memory-hierarchy.md`` shows them: block sizes and head dimensions
(``benchmarks.tiles``), decoding against its floor (``benchmarks.decode``), what plain XLA can hold
(``baseline_mha.py``) and the ledger's kept experiments. Tables are printed; ``suite.json`` and plots (SVG) go to
FOLDER, ``plots`` by default. ``--report`` writes them to ``docs/figures`` and puts the tables into that document.
``--only`` computes some tables anew, or none, and takes the others from the ``suite.json`` that is there.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import baseline_mha
from benchmarks.lib import decoding, prefill, report, tiles
from benchmarks.lib.command import command
from benchmarks.lib.crossover import crossover_rows
from benchmarks.lib.models import MODELS, PRICES, Model
from benchmarks.lib.plots import Point, plot_crossover, plot_programs, plot_roofline
from benchmarks.lib.table import show_all
from ratchet.exam.judge.workers import Workers
from ratchet.tpu.chips import V5E
from ratchet.values.status import Refusal

PAGE = 64
DECODE_CONTEXTS = (512, 1024, 2048, 4096, 8192, 32768, 131072)
PREFILL_CONTEXTS = (128, 256, 512, 1024)
PEER_KEYS = {"jax paged_attention": (2048,), "jax ragged_paged_attention": (512, 2048)}
"""Block sizes that came out first in ``python -m benchmarks.decode``."""
Rows = list[dict[str, Any]]


def shape_of(model: Model, context: int, batch: int, chips: int) -> decoding.Shape:
    """One layer's decoding problem."""
    return decoding.Shape(
        name=model.name,
        batch=batch,
        q_heads=model.q_heads,
        kv_heads=model.kv_heads,
        head_dim=model.head_dim,
        context=context,
        page=min(PAGE, context // chips),
    )


def decode_rows(model: Model) -> Rows:
    """A model at its context, a batch of 1 and of 8: ours on four chips and on one, peers on one."""
    rows = []
    with Workers(V5E, keep=False) as workers:
        for batch in (1, 8):
            shape = shape_of(model, model.context, batch, 4)
            timed = [decoding.row(shape, "paged_decode", decoding.ours(shape, chips, workers)) for chips in (1, 4)]
            for name, peer in decoding.PEERS.items():
                try:
                    timed.append(decoding.row(shape, name, *decoding.best(peer, shape, PEER_KEYS[name], workers)))
                except Refusal as refusal:
                    print(f"{model.name}, batch {batch}, {name}: {refusal.status.name}: {refusal.message[:200]}")
            rows += [per_model(model, shape, one) for one in timed]
    return rows


def per_model(model: Model, shape: decoding.Shape, one: dict[str, Any]) -> dict[str, Any]:
    per_s = shape.batch / (one["us"] * model.layers) * 1e6
    return {
        "model": model.name,
        "context": shape.context,
        "batch": shape.batch,
        "program": one["program"],
        "chips": one["chips"],
        "us per layer": one["us"],
        "x floor": one["x floor"],
        "% of HBM bandwidth": 100 * shape.cache_bytes / one["chips"] / V5E.hbm_bytes_per_s / one["us"] * 1e6,
        "tokens/s": per_s,
        **model.per_dollar(per_s, one["chips"]),
    }


def floor_rows(workers: Workers) -> Rows:
    """Ours at the shapes of ``benchmarks.decode``, against the floor."""
    keys = ("shape", "batch", "heads", "context", "program", "chips", "us", "x floor", "launch us", "kernel x floor")
    timed = [one for shape in decoding.SHAPES for one in decoding.rows_of(shape, workers, peers=False)]
    return [{key: one[key] for key in keys} for one in timed]


def decode_crossover(model: Model) -> Rows:
    """Decoding one sequence, one layer, over the context."""
    with Workers(V5E, keep=False) as workers:

        def us(context: int, chips: int) -> float:
            return decoding.ours(shape_of(model, context, 1, chips), chips, workers).latency_ms * 1e3

        return crossover_rows({"what": "decode", "model": model.name}, us, DECODE_CONTEXTS)


def prefill_crossover(model: Model) -> Rows:
    """Attention over a whole prompt, one layer, over its length."""
    with Workers(V5E, keep=False) as workers:

        def us(context: int, chips: int) -> float:
            return prefill.ours_ms(model, context, chips, workers) * 1e3

        return crossover_rows({"what": "prefill", "model": model.name}, us, PREFILL_CONTEXTS)


def roofline_rows(workers: Workers) -> Rows:
    """The points of the roofline, as they are drawn."""
    return [vars(point) for point in baseline_mha.points(workers)]


def alone(rows: Callable[[Workers], Rows]) -> Callable[[Model], Rows]:
    """A table that asks no model, only the compiler."""

    def made(_model: Model) -> Rows:
        with Workers(V5E, keep=False) as workers:
            return rows(workers)

    return made


TABLES: dict[str, tuple[str, Callable[[Model], Rows], Callable[[Model], bool] | None]] = {
    "prefill": ("prefill, attention of all layers, modelled", prefill.rows_of, lambda _: True),
    "decoding": ("decoding, attention of all layers, modelled", decode_rows, lambda _: True),
    "crossover": ("one chip against four, batch 1, one layer, modelled", decode_crossover, lambda m: not m.long),
    "prefill crossover": ("the same for prefill", prefill_crossover, lambda m: not m.long),
    "floor": (
        "decoding against the time of its cache at the bandwidth that DMAs reach, modelled",
        alone(floor_rows),
        None,
    ),
    "blocks": ("block sizes, 1 head, 16384 x 128, causal, modelled", lambda _: tiles.block_rows(), None),
    "dims": ("head dimensions, 8 heads, 4096, causal, modelled", lambda _: tiles.dim_rows(), None),
    "limits": (
        "plain XLA: the longest sequence that fits HBM, 16 heads x 128",
        alone(baseline_mha.limits),
        None,
    ),
    "roofline": ("the roofline's points, modelled", alone(roofline_rows), None),
}
"""Name -> title, who makes the rows, and for which models; None for what asks no model."""

OTHERS = {"chip": "what the model takes the chip to be", "history": "experiments that were kept"}


def _piece(name: str, model: Model) -> Rows | str:
    """One table's rows for one model, or in words why there are none: an exception need not survive the way back."""
    try:
        return TABLES[name][1](model)
    except Refusal as refusal:
        return f"{name}, {model.name}: {refusal.status.name}: {refusal.message[:300]}"


def compute(
    models: Sequence[Model], processes: int, names: Iterable[str] = TABLES
) -> tuple[dict[str, Rows], list[str]]:
    """The tables asked for, one piece per model and table, ``processes`` at a time; and what failed."""
    wanted = {
        name: [model for model in models if chosen(model)] if chosen else models[:1]
        for name, (_, _, chosen) in TABLES.items()
        if name in names
    }
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn, max_tasks_per_child=1) as pool:
        pieces = {name: [pool.submit(_piece, name, model) for model in own] for name, own in wanted.items()}
        results = {name: [piece.result() for piece in own] for name, own in pieces.items()}
    tables = {
        name: [row for piece in own if not isinstance(piece, str) for row in piece] for name, own in results.items()
    }
    return tables, [piece for own in results.values() for piece in own if isinstance(piece, str)]


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
    known = json.loads((out / "suite.json").read_text()) if options.only is not None else {}
    made, failed = compute(models, min(2, os.cpu_count() or 1), TABLES if options.only is None else options.only)
    tables = known | made
    tables["chip"] = report.chip_rows()
    tables["history"] = report.history(report.LEDGER.read_text(encoding="utf-8"))
    (out / "suite.json").write_text(json.dumps(tables, indent=1) + "\n")
    titles = {name: title for name, (title, _, _) in TABLES.items()} | OTHERS
    show_all({titles[name]: rows for name, rows in tables.items()}, json_file=options.json)
    for price in PRICES:
        dollars = f"{price['dollars_per_chip_hour']} $/chip-h"
        print(f"{price['chip']} {price['what']}: {dollars}, {price['source']} ({price['date']})")
    plot_crossover(tables["crossover"], out / "crossover.svg", "decode, batch 1")
    plot_crossover(tables["prefill crossover"], out / "prefill-crossover.svg", "prefill, one prompt")
    plot_roofline([Point(**row) for row in tables["roofline"]], V5E, out / "roofline.svg")
    plot_programs(tables["prefill"], "tokens/s", out / "prefill.svg")
    plot_programs([row for row in tables["decoding"] if row["batch"] == 8], "tokens/s", out / "decoding.svg")
    if options.report and not failed:
        report.REPORT.write_text(report.rendered(report.REPORT.read_text(), tables))
    print(f"written to {out}/ in {(time.monotonic() - began) / 60:.1f} minutes")
    if failed:
        raise SystemExit("\n".join(["not made:", *failed]))


if __name__ == "__main__":
    main()
