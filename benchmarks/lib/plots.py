"""Plots of modelled programs, as SVG: the same bytes for the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.tpu.chips import Chip

Rows = Sequence[dict[str, Any]]


@contextmanager
def _svg(path: Path, height: float = 4.5) -> Iterator[Any]:
    """Axes with a grid, which are written to ``path`` when the caller has drawn on them."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "benchmarks"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, height))
    yield axes
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One program under the roof of one chip."""

    name: str
    latency_ms: float
    flops_per_byte: float
    """Useful FLOPs over the bytes that the run moved through HBM."""
    flops_per_s: float
    """Useful FLOPs over the latency, per chip."""

    def roof(self, chip: Chip) -> float:
        """The most that a program of this intensity can reach, FLOP/s."""
        return min(chip.peak_bf16_flops, self.flops_per_byte * chip.hbm_bytes_per_s)


def plot_roofline(points: Sequence[Point], chip: Chip, path: Path) -> None:
    """Programs under the roof of ``chip``, both axes logarithmic."""
    ridge = chip.ridge_flops_per_byte
    low = min(0.25, *(point.flops_per_byte / 2 for point in points))
    high = max(4 * ridge, *(point.flops_per_byte * 2 for point in points))
    with _svg(path, height=5) as axes:
        axes.plot(
            [low, ridge, high],
            [low * chip.hbm_bytes_per_s / 1e12, *[chip.peak_bf16_flops / 1e12] * 2],
            color="black",
            label=f"{chip.name}: {chip.hbm_bytes_per_s / 1e9:.0f} GB/s, {chip.peak_bf16_flops / 1e12:.0f} TFLOP/s",
        )
        for point, marker in zip(points, "osD^v<>P*X" * len(points), strict=False):
            label = f"{point.name}: {point.latency_ms:.3g} ms, {point.flops_per_s / point.roof(chip):.0%} of the roof"
            axes.plot(point.flops_per_byte, point.flops_per_s / 1e12, marker, markersize=8, label=label)
        axes.set(xscale="log", yscale="log", xlabel="useful FLOPs per byte moved through HBM")
        axes.set_ylabel("useful TFLOP/s per chip (modelled)")
        axes.grid(visible=True, which="both", alpha=0.2)


def plot_scatter(rows: Rows, path: Path) -> None:
    """Modelled against measured latencies, both logarithmic. A colour for each source and kind.

    ``rows`` have ``source``, ``kind``, ``measured ms`` and ``modelled ms``.
    """
    groups: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        groups.setdefault(f"{row['kind']}: {row['source']}", []).append((row["measured ms"], row["modelled ms"]))
    with _svg(path, height=6.5) as axes:
        for (name, points), marker in zip(sorted(groups.items()), "os^vDP*X<>ph" * len(groups), strict=False):
            measured, modelled = zip(*points, strict=True)
            label = f"{name} ({len(points)})"
            axes.plot(measured, modelled, marker, markersize=4, alpha=0.7, label=label)
        ends = [min(row["measured ms"] for row in rows), max(row["measured ms"] for row in rows)]
        axes.plot(ends, ends, color="black", linewidth=0.7)
        axes.set(xscale="log", yscale="log", xlabel="measured on a TPU, ms", ylabel="modelled, ms")
        axes.grid(visible=True, which="both", alpha=0.2)


def plot_crossover(rows: Rows, path: Path, title: str = "") -> None:
    """Times as fast over the context, one line per model."""
    with _svg(path) as axes:
        for name in dict.fromkeys(row["model"] for row in rows):
            own = [row for row in rows if row["model"] == name]
            label = f"{name}: four win from {own[0]['four win from']}"
            axes.plot([r["context"] for r in own], [r["times as fast"] for r in own], marker="o", label=label)
        axes.axhline(1, color="black", linewidth=1)
        axes.axhline(4, color="black", linewidth=1, linestyle="dotted")
        axes.set(xlabel="context, tokens", ylabel="four chips, times as fast as one (modelled)", title=title)
        axes.set_xscale("log", base=2)
        axes.grid(visible=True, alpha=0.2)


def plot_programs(rows: Rows, column: str, path: Path) -> None:
    """Bars of one column per model and program."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    programs = list(dict.fromkeys((row["program"], row["chips"]) for row in rows))
    width = 0.8 / len(programs)
    with _svg(path) as axes:
        for number, (program, chips) in enumerate(programs):
            value = {r["model"]: r[column] or 0 for r in rows if (r["program"], r["chips"]) == (program, chips)}
            middles = [i + (number - (len(programs) - 1) / 2) * width for i in range(len(models))]
            label = f"{program}, {chips} chip{'s' * (chips > 1)}"
            axes.bar(middles, [value.get(model, 0) for model in models], width, label=label)
        axes.set_xticks(range(len(models)), models, fontsize=8)
        axes.set(yscale="log", ylabel=f"{column} (modelled)")
        axes.grid(visible=True, axis="y", alpha=0.2)
