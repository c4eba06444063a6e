"""How far predictions of groups held out can be trusted, as tables by title: their bands, and the order of pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.lib.published import errors, pairs, widths
from benchmarks.lib.published.builders import kind_of
from benchmarks.lib.published.evaluate import Fold, Prediction
from ratchet.tpu.account import band

Tables = dict[str, list[dict[str, Any]]]


def accuracy(folds: Sequence[Fold]) -> Tables:
    """Coverage of 90 % bands, and how often two programs of one sweep are ranked as the measurements rank them."""
    held_out = [p for fold in folds for p in fold.held_out]
    own = {key: entry.width for key, entry in widths.widths(held_out).items()}
    return {
        f"{band.LEVEL:.0%} bands, each kernel held out in turn": [
            {
                "chip": c.chip,
                "bound by": c.regime,
                "cases": c.count,
                "kernels": c.kernels,
                "inside": f"{c.inside:.1%}",
                "half-width": f"{c.width:.1%}",
                "kept": f"{own[c.chip, c.regime]:.1%}" if (c.chip, c.regime) in own else "",
                "inside kept": f"{c.inside_kept:.1%}",
            }
            for c in widths.coverage(held_out)
        ],
        "pairs of one sweep, by kind of kernel": _pairs(pairs.by_kind(folds), "kind"),
        "pairs of one sweep, by the rule that decides experiments": _pairs(pairs.by_rule(folds, own), "rule"),
    }


def by_regime(
    predictions: Iterable[Prediction], bands: Mapping[widths.Key, float] | None = None
) -> list[dict[str, Any]]:
    """Errors per chip, source, kind of kernel and what bounds it; wall clocks only where they say much.

    ``bands`` are relative half-widths: with them, the share of rows inside is shown.
    """
    groups: dict[tuple[str, str, str], list[Prediction]] = {}
    for p in predictions:
        if p.says_much:
            key = p.source, kind_of(p.row.case.kernel), p.regime
            groups.setdefault(key, []).append(p)
    rows = []
    for (source, kind, regime), own in sorted(groups.items()):
        summary = errors.summarise([p.row.measured_ms for p in own], [p.modelled_ms for p in own])
        row = {
            "source": source,
            "kind": kind,
            "bound by": regime,
            "rows": summary.count,
            "mean": f"{summary.mean:.2%}",
            "largest": f"{summary.largest:.2%}",
            "bias": f"{summary.bias:+.2%}",
        }
        if bands is not None:
            inside = sum(p.error <= math.log1p(bands[p.key]) for p in own)
            row["in band"] = f"{inside / len(own):.0%}"
        rows.append(row)
    return rows


def by_sweep(folds: Iterable[Fold]) -> list[dict[str, Any]]:
    """Rank correlation within each sweep: of its programs, each held out, and the least of all folds."""
    return [
        {
            "source": s.source,
            "kind": s.kind,
            "arrays": s.shapes,
            "programs": s.programs,
            "rank": f"{s.held_out:.4f}",
            "least of all fits": f"{s.least:.4f}",
        }
        for s in pairs.sweep_ranks(folds)
    ]


def _pairs(ranked: Iterable[pairs.Ranked], title: str) -> list[dict[str, Any]]:
    return [
        {title: r.what, "modelled apart": r.apart, "pairs": r.pairs, "ranked right": f"{r.right:.1%}"} for r in ranked
    ]
