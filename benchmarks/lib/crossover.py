"""From which context on four chips beat one: found by halving, to a step, and plotted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def crossover(slower: Callable[[int], bool], contexts: Sequence[int]) -> int | None:
    """The smallest context, to half of the smallest one, at which four chips are no longer ``slower``."""
    wins = next((context for context in contexts if not slower(context)), None)
    if wins is None or wins == contexts[0]:
        return wins
    step = contexts[0] // 2
    low, high = wins // 2, wins
    while high - low > step:
        middle = (low + high) // 2 // step * step
        low, high = (middle, high) if slower(middle) else (low, middle)
    return high


def crossover_rows(
    what: dict[str, Any], us: Callable[[int, int], float], contexts: Sequence[int]
) -> list[dict[str, Any]]:
    """One row per context, begun by ``what``; ``us(context, chips)`` are the latencies, asked for once each."""
    known: dict[tuple[int, int], float] = {}

    def latency(context: int, chips: int) -> float:
        if (context, chips) not in known:
            known[context, chips] = us(context, chips)
        return known[context, chips]

    crossing = crossover(lambda context: latency(context, 4) >= latency(context, 1), contexts)
    rows = []
    for context in sorted({*contexts, *((crossing,) if crossing else ())}):
        one, four = latency(context, 1), latency(context, 4)
        rows.append(
            {
                **what,
                "context": context,
                "one chip us": one,
                "four chips us": four,
                "times as fast": one / four,
                "four win from": crossing,
            }
        )
    return rows


def plot_crossover(rows: list[dict[str, Any]], path: Path, title: str = "") -> None:
    """Times as fast over the context, one line per model; the same bytes for the same rows."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "suite"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5))
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        label = f"{name}: four win from {own[0]['four win from']}"
        axes.plot([r["context"] for r in own], [r["times as fast"] for r in own], marker="o", label=label)
    axes.axhline(1, color="black", linewidth=1)
    axes.axhline(4, color="black", linewidth=1, linestyle="dotted")
    axes.set(xlabel="context, tokens", ylabel="four chips, times as fast as one (modelled)", title=title)
    axes.set_xscale("log", base=2)
    axes.grid(visible=True, alpha=0.2)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)
