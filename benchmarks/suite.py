"""Decoding at the shapes of named models, one chip and four, in tokens per second and per dollar; modelled.

    python -m benchmarks.suite [--quick] [--out FOLDER]

Attention alone, all layers of the model: the matrix products around it, sampling and the host are left out, so the
tokens per second are what attention would allow by itself. Shapes come from ``data/models.json``, prices from
``data/prices.json`` (each with its source and date). Writes tables, ``suite.json`` and plots (SVG) to FOLDER, ``plots``
by default. ``x floor`` is over the cache's bytes at 0.88 of 819 GB/s on the chips of the row.

The crossover: at short contexts four chips lose to one, because they meet before the program and talk at its end. The
context from which on they win is found by halving between two powers of two, to the page.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.decode import HBM_SHARE, PAGED, Shape, table_of
from benchmarks.programs import edited, modelled, of_source
from benchmarks.table import show
from ratchet.chips import V5E
from ratchet.judge.workers import Workers

DATA = Path(__file__).parent / "data"
MODELS: list[dict[str, Any]] = json.loads((DATA / "models.json").read_text())["models"]
PRICES: list[dict[str, Any]] = json.loads((DATA / "prices.json").read_text())["prices"]
PAGE = 64
CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


def decode_us(model: dict[str, Any], context: int, batch: int, chips: int, workers: Workers) -> float:
    """One layer's attention to a cache of full sequences, microseconds."""
    shape = Shape(
        name=model["name"],
        batch=batch,
        q_heads=model["q_heads"],
        kv_heads=model["kv_heads"],
        context=context,
        page=min(PAGE, context // chips),
    )
    source = edited(
        PAGED.read_text(),
        CHIPS=chips,
        BATCH=batch,
        Q_HEADS=shape.q_heads,
        KV_HEADS=shape.kv_heads,
        HEAD_DIM=model["head_dim"],
        CONTEXT=context,
        PAGE=shape.page,
    )
    steering: dict[int | str, np.ndarray] = {3: np.full(batch, context, np.int32), 4: table_of(shape, chips)}
    return modelled(of_source(source)[0], workers, steering).latency_ms * 1e3


def decode_rows(models: list[dict[str, Any]], workers: Workers) -> list[dict[str, Any]]:
    """Each model at its context, a batch of 1 and of 8, on one chip and on four."""
    rows = []
    for model in models:
        for batch in (1, 8):
            for chips in (1, 4):
                us = decode_us(model, model["context"], batch, chips, workers)
                moved = batch * model["kv_heads"] * model["context"] * model["head_dim"] * 4
                floor = moved / chips / (HBM_SHARE * V5E.hbm_bytes_per_s) * 1e6
                per_s = batch / (us * model["layers"]) * 1e6
                rows.append(
                    {
                        "model": model["name"],
                        "context": model["context"],
                        "batch": batch,
                        "chips": chips,
                        "us per layer": us,
                        "x floor": us / floor,
                        "% of HBM bandwidth": 100 * moved / chips / V5E.hbm_bytes_per_s / us * 1e6,
                        "tokens/s": per_s,
                        **{
                            f"Mtokens/$ {price['what']}": per_s * 3600 / (chips * price["dollars_per_chip_hour"]) / 1e6
                            for price in PRICES
                        },
                    }
                )
    return rows


def crossover(slower: Callable[[int], bool], contexts: tuple[int, ...]) -> int | None:
    """The smallest context, to the step of the smallest one, at which four chips are no longer ``slower``."""
    wins = next((context for context in contexts if not slower(context)), None)
    if wins is None or wins == contexts[0]:
        return wins
    step = contexts[0] // 2
    low, high = wins // 2, wins
    while high - low > step:
        middle = (low + high) // 2 // step * step
        low, high = (middle, high) if slower(middle) else (low, middle)
    return high


def crossover_rows(models: list[dict[str, Any]], workers: Workers) -> list[dict[str, Any]]:
    """For each model: latency on one chip and on four over the context, and where the two meet."""
    rows = []
    for model in models:
        known: dict[tuple[int, int], float] = {}

        def us(context: int, chips: int, model: dict[str, Any] = model, known: Any = known) -> float:
            if (context, chips) not in known:
                known[context, chips] = decode_us(model, context, 1, chips, workers)
            return known[context, chips]

        meets = crossover(lambda context: us(context, 4) >= us(context, 1), CONTEXTS)
        for context in sorted({*CONTEXTS, *((meets,) if meets else ())}):
            one, four = us(context, 1), us(context, 4)
            rows.append(
                {
                    "model": model["name"],
                    "context": context,
                    "one chip us": one,
                    "four chips us": four,
                    "times as fast": one / four,
                    "four win from": meets,
                }
            )
    return rows


def plot_crossover(rows: list[dict[str, Any]], path: Path) -> None:
    """Times as fast over the context, one line per model."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "suite"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5))
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        label = f"{name}: four win from {own[0]['four win from']}"
        axes.plot([r["context"] for r in own], [r["times as fast"] for r in own], marker="o", label=label)
    axes.axhline(1, color="black", linewidth=1)
    axes.axhline(4, color="black", linewidth=1, linestyle="dotted")
    axes.set(xscale="log", xlabel="context, keys", ylabel="four chips, times as fast as one (modelled)")
    axes.set_xscale("log", base=2)
    axes.grid(visible=True, alpha=0.2)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the first model only")
    parser.add_argument("--out", type=Path, default=Path("plots"), metavar="FOLDER")
    options = parser.parse_args()
    models = MODELS[:1] if options.quick else MODELS
    options.out.mkdir(parents=True, exist_ok=True)
    with Workers(V5E, keep=False) as workers:
        decoding = decode_rows(models, workers)
        show("decoding, attention of all layers, modelled", decoding)
        crossing = crossover_rows([m for m in models if "long context" not in m["name"]], workers)
        show("one chip against four, batch 1, one layer, modelled", crossing)
    for price in PRICES:
        dollars = f"{price['dollars_per_chip_hour']} $/chip-h"
        print(f"{price['chip']} {price['what']}: {dollars}, {price['source']} ({price['date']})")
    plot_crossover(crossing, options.out / "crossover.svg")
    (options.out / "suite.json").write_text(json.dumps({"decoding": decoding, "crossover": crossing}, indent=1) + "\n")
    print(f"written to {options.out}/: suite.json, crossover.svg")


if __name__ == "__main__":
    main()
