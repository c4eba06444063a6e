"""How far predictions of rows held out can be trusted, as tables by title: errors, bands, and the order of a sweep."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.lib.published import widths
from benchmarks.lib.published.cases import kind_of
from benchmarks.lib.published.evaluate import Fold, Prediction, rank_correlation, summarised
from benchmarks.lib.published.timed import grouped
from ratchet.loop.compare import ModelledLatency, compare
from ratchet.tpu.account import band
from ratchet.tpu.chips import CHIPS

Rows = list[dict[str, Any]]
Tables = dict[str, Rows]

STEPS = (0.0, 0.01, 0.02, 0.04, 0.08)
"""Edges of how far apart two latencies are modelled."""

FEWEST_PROGRAMS = 5
"""Of a sweep whose rank correlation is shown."""


def accuracy(folds: Sequence[Fold]) -> Tables:
    """Coverage of 90 % bands, and how often two programs of one sweep are ranked as the measurements rank them."""
    held_out = [p for fold in folds for p in fold.held_out]
    own = {key: entry.width for key, entry in widths.widths(held_out).items()}
    covered = []
    for row in widths.coverage(held_out):
        inside, width, inside_kept = (f"{row.pop(name):.1%}" for name in ("inside", "half-width", "inside kept"))
        kept = own.get((row["chip"], row["bound by"]))
        cells = {"inside": inside, "half-width": width, "kept": "" if kept is None else f"{kept:.1%}"}
        covered.append({**row, **cells, "inside kept": inside_kept})
    return {
        f"{band.LEVEL:.0%} bands, each kernel held out in turn": covered,
        "pairs of one sweep, by kind of kernel": pairs_by_kind(folds),
        "pairs of one sweep, by the rule that decides experiments": pairs_by_rule(folds, own),
    }


def by_regime(predictions: Iterable[Prediction], bands: Mapping[widths.Key, float] | None = None) -> Rows:
    """Errors per chip, source, kind of kernel and what bounds it; wall clocks only where they say much.

    ``bands`` are relative half-widths: with them, the share of rows inside is shown.
    """
    much = (p for p in predictions if p.says_much)
    groups = grouped(much, lambda p: (p.source, kind_of(p.row.case.kernel), p.regime))
    rows: Rows = []
    for (source, kind, regime), own in sorted(groups.items()):
        known = {"source": source, "kind": kind, "bound by": regime}
        known |= summarised(own).columns("mean", "largest", "bias")
        if bands is not None:
            known["in band"] = f"{sum(p.error <= math.log1p(bands[p.key]) for p in own) / len(own):.0%}"
        rows.append(known)
    return rows


# --- the order of a sweep ---


def sweeps(predictions: Iterable[Prediction]) -> list[list[Prediction]]:
    """Timings of one source that differ in the settings of one kernel alone."""
    known = grouped((p for p in predictions if p.says_much and p.measured_device_ms > 0), _sweep)
    return [own for _, own in sorted(known.items()) if len({p.row.identity for p in own}) > 1]


def _sweep(p: Prediction) -> tuple[str, ...]:
    case = p.row.case
    shapes = " ".join(str(array) for array in case.arrays)
    return p.source, case.kernel, case.chip, shapes, str(dict(case.options)), str(case.group_sizes)


def by_sweep(folds: Sequence[Fold]) -> Rows:
    """Spearman's rank correlation of every sweep of at least ``FEWEST_PROGRAMS`` programs that were held out.

    ``rank`` is that of programs each predicted without itself, ``least of all fits`` the least of all folds, each of
    which predicts all programs of the sweep by one set of constants.
    """
    least: dict[tuple[str, ...], float] = {}
    for fold in folds:
        for own in sweeps(fold.predictions):
            if any(p.row.case.number in fold.left_out for p in own):
                rank = rank_correlation(own, device=True)
                least[_sweep(own[0])] = min(rank, least.get(_sweep(own[0]), 1.0))
    made: Rows = []
    for own in sweeps(p for fold in folds for p in fold.held_out):
        programs, case = len({p.row.identity for p in own}), own[0].row.case
        if programs >= FEWEST_PROGRAMS:
            made.append(
                {
                    "source": own[0].source,
                    "kind": kind_of(case.kernel),
                    "arrays": " ".join(str(array) for array in case.arrays[:2]),
                    "programs": programs,
                    "rank": f"{rank_correlation(own, device=True):.4f}",
                    "least of all fits": f"{least[_sweep(own[0])]:.4f}",
                }
            )
    return made


def pairs_by_kind(folds: Iterable[Fold]) -> Rows:
    """Every pair of a sweep, by the kind of kernel and how far apart the two are modelled; then all kinds together."""
    seen = []
    for one, other in _pairs(folds):
        kind, clock = kind_of(one.row.case.kernel), f"{one.row.case.timer} clock"
        seen += [(f"{kind}, {clock}", one, other), (f"~all, {clock}", one, other)]
    return _ranked("kind", seen)


def pairs_by_rule(folds: Iterable[Fold], bands: Mapping[widths.Key, float]) -> Rows:
    """Every pair of a sweep timed on the device, by what the rule of ``loop/compare.py`` says of it.

    Wall clocks are left out: they differ from call to call by more than near programs do.

    Args:
        folds: of programs held out.
        bands: relative half-width per chip and regime.
    """
    seen = []
    for one, other in _pairs(folds):
        if one.row.case.timer == "device":
            said = compare(_as_modelled(one, bands), _as_modelled(other, bands))
            seen.append(("counts as the same" if said.same else said.reason.split(",")[0], one, other))
    return _ranked("rule", seen)


def _as_modelled(prediction: Prediction, bands: Mapping[widths.Key, float]) -> ModelledLatency:
    """A prediction as the decision rule sees a score."""
    clock = CHIPS[prediction.row.case.chip].clock_hz
    ms, factor = prediction.device_ms, 1 + bands[prediction.key]
    issued = prediction.row.tape.facts["executed_bundles"] / clock * 1e3
    return ModelledLatency(latency=ms, wait=ms - issued, low=ms / factor, high=ms * factor)


def _pairs(folds: Iterable[Fold]) -> Iterator[tuple[Prediction, Prediction]]:
    """Of which the constants saw at most one."""
    for fold in folds:
        for own in sweeps(fold.predictions):
            for one, other in itertools.combinations(own, 2):
                new = one.row.case.number in fold.left_out or other.row.case.number in fold.left_out
                if new and one.row.identity != other.row.identity:  # else one program under two names
                    yield one, other


def _ranked(title: str, pairs: Iterable[tuple[str, Prediction, Prediction]]) -> Rows:
    """How often pairs were ranked as measured, by what they are and how far apart they are modelled."""
    table: dict[tuple[str, int], list[bool]] = {}
    for what, one, other in pairs:
        apart = max(one.device_ms, other.device_ms) / min(one.device_ms, other.device_ms) - 1
        right = (one.device_ms > other.device_ms) == (one.measured_device_ms > other.measured_device_ms)
        table.setdefault((what, sum(apart >= edge for edge in STEPS) - 1), []).append(right)
    words = [f"{low:.0%} to {high:.0%}" for low, high in itertools.pairwise(STEPS)] + [f"over {STEPS[-1]:.0%}"]
    return [
        {
            title: what.removeprefix("~"),
            "modelled apart": words[step],
            "pairs": len(hits),
            "ranked right": f"{sum(hits) / len(hits):.1%}",
        }
        for (what, step), hits in sorted(table.items())
    ]
