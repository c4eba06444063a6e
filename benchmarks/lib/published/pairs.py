"""Pairs of programs of one sweep: how often they are ranked as measured, and what the decision rule says of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.lib.published import errors
from benchmarks.lib.published.builders import kind_of
from benchmarks.lib.published.evaluate import Fold, Prediction
from ratchet.loop.compare import ModelledLatency, compare
from ratchet.tpu.chips import CHIPS

STEPS = (0.0, 0.01, 0.02, 0.04, 0.08, math.inf)
"""Edges of how far apart two latencies are modelled."""

FEWEST_PROGRAMS = 5
"""Of a sweep whose rank correlation is shown."""


def sweeps(predictions: Iterable[Prediction]) -> list[list[Prediction]]:
    """Timings of one source that differ in the settings of one kernel alone."""
    seen: dict[tuple[str, ...], list[Prediction]] = {}
    for p in predictions:
        if p.says_much and p.row.measured_ms > p.dispatch_ms:
            seen.setdefault(_sweep(p), []).append(p)
    return [own for _, own in sorted(seen.items()) if len({p.row.identity for p in own}) > 1]


def _sweep(p: Prediction) -> tuple[str, ...]:
    case = p.row.case
    shapes = " ".join(str(array) for array in case.arrays)
    return p.source, case.kernel, case.chip, shapes, str(dict(case.options)), str(case.group_sizes)


def measured_device_ms(p: Prediction) -> float:
    """Measured, without the wall clock's constant."""
    return p.row.measured_ms - p.dispatch_ms


@dataclass(frozen=True, kw_only=True)
class SweepRank:
    """How one sweep is ranked."""

    source: str
    kind: str
    shapes: str
    programs: int
    held_out: float
    """Spearman's, of programs each predicted without itself. Timings of one program are averaged first."""
    least: float
    """The least of all folds, each of which predicts all programs of the sweep by one set of constants."""


def sweep_ranks(folds: Sequence[Fold]) -> list[SweepRank]:
    """Of every sweep of at least ``FEWEST_PROGRAMS`` programs that were held out."""
    least: dict[tuple[str, ...], float] = {}
    for fold in folds:
        for own in sweeps(fold.predictions):
            if any(p.row.case.number in fold.left_out for p in own):
                least[_sweep(own[0])] = min(_rank(own), least.get(_sweep(own[0]), 1.0))
    made = []
    for own in sweeps(p for fold in folds for p in fold.held_out):
        programs, case = len({p.row.identity for p in own}), own[0].row.case
        if programs >= FEWEST_PROGRAMS:
            made.append(
                SweepRank(
                    source=own[0].source,
                    kind=kind_of(case.kernel),
                    shapes=" ".join(str(array) for array in case.arrays[:2]),
                    programs=programs,
                    held_out=_rank(own),
                    least=least[_sweep(own[0])],
                )
            )
    return made


def _rank(predictions: Iterable[Prediction]) -> float:
    """Spearman's over programs."""
    programs: dict[str, list[Prediction]] = {}
    for p in predictions:
        programs.setdefault(p.row.identity, []).append(p)
    measured = [sum(map(measured_device_ms, same)) / len(same) for same in programs.values()]
    return errors.rank_correlation(measured, [same[0].device_ms for same in programs.values()])


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """How often pairs of one kind were ranked as the measurements rank them."""

    what: str
    """The kind of kernel, or what the decision rule said."""
    apart: str
    """How far apart the two were modelled."""
    pairs: int
    right: float


def by_kind(folds: Iterable[Fold]) -> list[Ranked]:
    """Every pair of a sweep, by the kind of kernel and how far apart the two are modelled; then all kinds together."""
    seen = []
    for one, other in _pairs(folds):
        kind, clock = kind_of(one.row.case.kernel), f"{one.row.case.timer} clock"
        seen += [(what, _step(one, other), _right(one, other)) for what in (f"{kind}, {clock}", f"~all, {clock}")]
    return _ranked(seen)


def by_rule(folds: Iterable[Fold], bands: Mapping[tuple[str, str], float]) -> list[Ranked]:
    """Every pair of a sweep timed on the device, by what the rule of ``loop/compare.py`` says of it.

    Wall clocks are left out: they differ from call to call by more than near programs do.

    Args:
        folds: of programs held out.
        bands: relative half-width per chip and regime.
    """
    seen = []
    for one, other in _pairs(folds):
        if one.row.case.timer == "device":
            said = compare(as_modelled(one, bands), as_modelled(other, bands))
            what = "counts as the same" if said.same else said.reason.split(",")[0]
            seen.append((what, _step(one, other), _right(one, other)))
    return _ranked(seen)


def as_modelled(prediction: Prediction, bands: Mapping[tuple[str, str], float]) -> ModelledLatency:
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


def _step(one: Prediction, other: Prediction) -> int:
    apart = max(one.device_ms, other.device_ms) / min(one.device_ms, other.device_ms) - 1
    return sum(apart >= edge for edge in STEPS) - 1


def _right(one: Prediction, other: Prediction) -> bool:
    return (one.device_ms > other.device_ms) == (measured_device_ms(one) > measured_device_ms(other))


def _ranked(seen: Iterable[tuple[str, int, bool]]) -> list[Ranked]:
    table: dict[tuple[str, int], list[bool]] = {}
    for what, step, right in seen:
        table.setdefault((what, step), []).append(right)
    return [
        Ranked(what=what.removeprefix("~"), apart=_words(step), pairs=len(hits), right=sum(hits) / len(hits))
        for (what, step), hits in sorted(table.items())
    ]


def _words(step: int) -> str:
    low, high = STEPS[step], STEPS[step + 1]
    return f"over {low:.0%}" if math.isinf(high) else f"{low:.0%} to {high:.0%}"
