"""How far predictions of groups held out can be trusted, as tables by title: their bands, and the order of pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.lib.published import evaluate
from ratchet.account import band


def accuracy(
    held_out: Sequence[evaluate.Prediction], factors: Mapping[str, float], table: Mapping[str, tuple[float, int]]
) -> dict[str, list[dict[str, Any]]]:
    """Coverage of 90 % bands, and how often two programs of one kernel are ranked as the measurements rank them.

    Args:
        held_out: of :func:`evaluate.cross_validated`.
        factors: of :func:`evaluate.inflation`.
        table: of :func:`evaluate.band_table`.
    """
    widths = {name: width for name, (width, _) in table.items()}
    return {
        f"{band.LEVEL:.0%} bands, each kernel held out in turn": [
            {
                "bound by": c.regime,
                "cases": c.count,
                "inside": f"{c.inside:.1%}",
                "half-width": f"{c.width:.1%}",
                "of it widened by": f"{factors[c.regime] - 1:.0%}" if c.regime in factors else "",
            }
            for c in evaluate.coverage(held_out, factors)
        ],
        "pairs of one kernel at one shape, by the rule that decides experiments": [
            {"rule": r.rule, "modelled apart": r.apart, "pairs": r.pairs, "ranked right": f"{r.right:.1%}"}
            for r in evaluate.ranking(held_out, widths)
        ],
    }
