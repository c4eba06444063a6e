"""A roofline plot of modelled programs, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ratchet.chips import Chip


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


def draw(points: Sequence[Point], chip: Chip, path: Path) -> Path:
    """Write the plot to ``path``; the same bytes for the same points. Returns ``path``."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "roofline"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5))
    ridge = chip.ridge_flops_per_byte
    low = min(0.25, *(point.flops_per_byte / 2 for point in points))
    high = max(4 * ridge, *(point.flops_per_byte * 2 for point in points))
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
    axes.legend(loc="lower right", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)
    return path
