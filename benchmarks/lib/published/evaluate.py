"""Cases with tapes and constants -> predictions, errors and bands, in sample and cross-validated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.lib.published import errors
from benchmarks.lib.published.fit import Chips, Timed, modelled_ms
from benchmarks.lib.published.work import grouped_steps, null_ms, step_flops, work
from ratchet.account import band
from ratchet.chips import CHIPS
from ratchet.loop.compare import ModelledLatency, compare

LEAST_WALL_MS = 0.5
"""Wall-clock timings under this say little of the program: the dispatch is most of them."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One published timing beside what the model says of it."""

    row: Timed
    device_ms: float
    """Modelled, without the wall clock's constant."""
    dispatch_ms: float
    regime: str

    @property
    def modelled_ms(self) -> float:
        """What the source's own timer should show."""
        return self.device_ms + self.dispatch_ms

    @property
    def log_ratio(self) -> float:
        """Modelled over measured device time, in logarithm; infinite where the clock shows less than its constant."""
        measured = self.row.measured_ms - self.dispatch_ms
        return math.log(self.device_ms / measured) if measured > 0 else math.inf

    @property
    def says_much(self) -> bool:
        """False for wall-clock timings so short that the dispatch is most of them."""
        return self.row.case.timer == "device" or self.row.measured_ms >= LEAST_WALL_MS

    @property
    def source(self) -> str:
        """What errors are summarised by."""
        return f"{self.row.case.family} ({self.row.case.chip}, {self.row.case.timer})"


def predict(rows: Sequence[Timed], chips: Chips, dispatch: Mapping[str, float] | None = None) -> list[Prediction]:
    """Predictions with one set of constants.

    Args:
        rows: timings with their tapes.
        chips: constants per chip.
        dispatch: ms per source with a wall clock; for others, and without it for all, each row gets the constant that
            fits the other rows of its source.
    """
    device = modelled_ms(rows, chips)
    added = np.zeros(len(rows))
    for source in {row.case.family for row in rows if row.case.timer == "wall"}:
        which = [i for i, row in enumerate(rows) if row.case.timer == "wall" and row.case.family == source]
        if dispatch is not None and source in dispatch:
            added[which] = dispatch[source]
        else:
            added[which] = errors.dispatch_left_out_ms([rows[i].measured_ms for i in which], device[which].tolist())
    return [
        Prediction(row=row, device_ms=float(ms), dispatch_ms=float(extra), regime=_regime(row, chips, float(ms)))
        for row, ms, extra in zip(rows, device, added, strict=True)
    ]


def cross_validated(rows: Sequence[Timed], chips_without: Callable[[str], Chips]) -> list[Prediction]:
    """Each row predicted by constants that were fitted without its group; wall constants by the other rows.

    Args:
        rows: the calibration rows.
        chips_without: constants fitted without a group.
    """
    predictions: dict[int, Prediction] = {}
    for group in sorted({row.group for row in rows}):
        # A source may have several kernels, and one wall-clock constant: predict them all, keep the group's.
        source = {row.case.family for row in rows if row.group == group}
        which = [i for i, row in enumerate(rows) if row.case.family in source]
        for i, prediction in zip(which, predict([rows[i] for i in which], chips_without(group)), strict=True):
            if rows[i].group == group:
                predictions[i] = prediction
    return [predictions[i] for i in range(len(rows))]


def _regime(row: Timed, chips: Chips, ms: float) -> str:
    chip, facts = CHIPS[row.case.chip], row.tape.facts
    constants = chips[chip.name]
    cycles = ms * 1e-3 * chip.clock_hz
    per_cycle = constants.hbm_efficiency * chip.hbm_bytes_per_s / chip.cores / chip.clock_hz
    return band.regime_of(facts["hbm_bytes"] / per_cycle / cycles, 1 - facts["executed_bundles"] / cycles)


def rank_correlation(predictions: Iterable[Prediction]) -> float:
    """Spearman's over programs: timings of one program, under whatever names, are averaged first."""
    programs: dict[str, list[Prediction]] = {}
    for p in predictions:
        programs.setdefault(p.row.identity, []).append(p)
    measured = [sum(p.row.measured_ms for p in own) / len(own) for own in programs.values()]
    modelled = [sum(p.modelled_ms for p in own) / len(own) for own in programs.values()]
    return errors.rank_correlation(measured, modelled)


def simple_models(rows: Sequence[Timed]) -> tuple[list[float | None], list[float | None]]:
    """Roofline and null model per row, in ms, each with the constant per source that fits it best."""
    roofline: list[float | None] = []
    null: list[float | None] = []
    for row in rows:
        known, chip, facts = work(row.case), CHIPS[row.case.chip], row.tape.facts
        roofline.append(known.roofline_ms(chip) if known else None)
        steps, traffic = grouped_steps(row.case) or max(1, int(facts["grid_steps"])), int(facts["hbm_bytes"])
        flops = step_flops(row.case)
        null.append(null_ms(chip, steps=steps, hbm_bytes=traffic, flops=flops) if flops else None)
    for model in (roofline, null):
        sources = {(row.case.family, row.case.chip, row.case.timer) for row in rows}
        for source in sources:
            which = [
                i
                for i, row in enumerate(rows)
                if (row.case.family, row.case.chip, row.case.timer) == source and model[i] is not None
            ]
            values = [model[i] or 0.0 for i in which]
            extra = errors.dispatch_ms([rows[i].measured_ms for i in which], values) if which else 0.0
            for i, value in zip(which, values, strict=True):
                model[i] = value + extra
    return roofline, null


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How honest bands are: of cases held out, the share inside, and how wide the bands were."""

    regime: str
    count: int
    inside: float
    width: float
    """Mean relative half-width."""


def band_table(predictions: Iterable[Prediction], factors: Mapping[str, float]) -> dict[str, tuple[float, int]]:
    """Width and number of timings per regime. A regime without timings gets the widest of the others.

    ``factors`` widen each: see :func:`inflation`.
    """
    kept = [p for p in predictions if p.says_much]
    widths = {}
    for name in band.REGIMES:
        own = [p.log_ratio for p in kept if p.regime == name]
        if own:
            widths[name] = (factors[name] * band.width_for(own), len(own))
    widest = max(width for width, _ in widths.values())
    return {name: widths.get(name, (widest, 0)) for name in band.REGIMES}


def inflation(predictions: Sequence[Prediction]) -> dict[str, float]:
    """Least factor on the width of each regime, in hundredths from 1 on, with which kernels held out are covered.

    The errors of one kernel are alike, so a band made from other kernels alone is somewhat too narrow for it.
    """
    factors = dict.fromkeys(band.REGIMES, 1.0)
    while narrow := {c.regime for c in coverage(predictions, factors) if c.inside < band.LEVEL} & factors.keys():
        for name in narrow:
            factors[name] = round(factors[name] + 0.01, 2)
    return factors


def coverage(predictions: Sequence[Prediction], factors: Mapping[str, float]) -> list[Coverage]:
    """Leave-one-group-out: bands from all other groups, checked on the group. Per regime, then all together."""
    kept = [p for p in predictions if p.says_much]
    checked: list[tuple[str, bool, float]] = []
    for group in sorted({p.row.group for p in kept}):
        table = band_table([p for p in kept if p.row.group != group], factors)
        for p in kept:
            if p.row.group == group:
                width = table[p.regime][0]
                checked.append((p.regime, abs(p.log_ratio) <= math.log1p(width), width))
    rows = [(name, [c for c in checked if c[0] == name]) for name in band.REGIMES] + [("all", checked)]
    return [
        Coverage(
            regime=name,
            count=len(own),
            inside=sum(c[1] for c in own) / len(own),
            width=sum(c[2] for c in own) / len(own),
        )
        for name, own in rows
        if own
    ]


def as_modelled(prediction: Prediction, widths: Mapping[str, float]) -> ModelledLatency:
    """A prediction as the decision rule sees a score."""
    clock = CHIPS[prediction.row.case.chip].clock_hz
    ms, factor = prediction.device_ms, 1 + widths[prediction.regime]
    issued = prediction.row.tape.facts["executed_bundles"] / clock * 1e3
    return ModelledLatency(latency=ms, wait=ms - issued, low=ms / factor, high=ms * factor)


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """How often the decision rule's kind of pair was ranked as the measurements rank it."""

    rule: str
    apart: str
    """How far apart the two were modelled."""
    pairs: int
    right: float


STEPS = (0.0, 0.02, 0.04, 0.08, 0.16, math.inf)


def ranking(predictions: Iterable[Prediction], widths: Mapping[str, float]) -> list[Ranked]:
    """Every two timings of one kernel at one shape, by what the rule of ``loop/compare.py`` says of them."""
    seen: dict[tuple[str, int], list[bool]] = {}
    for one, other in _pairs_of_a_family(predictions):
        said = compare(as_modelled(one, widths), as_modelled(other, widths))
        modelled = math.log(one.device_ms / other.device_ms)
        measured = math.log((one.row.measured_ms - one.dispatch_ms) / (other.row.measured_ms - other.dispatch_ms))
        step = sum(abs(modelled) >= edge for edge in STEPS) - 1
        rule = "the same: traded, and near" if said.same else said.reason.split(",")[0]
        seen.setdefault((rule, step), []).append(modelled * measured > 0)
    return [
        Ranked(
            rule=rule,
            apart=f"{STEPS[step]:.0%} to {STEPS[step + 1]:.0%}" if step < len(STEPS) - 2 else f"over {STEPS[step]:.0%}",
            pairs=len(hits),
            right=sum(hits) / len(hits),
        )
        for (rule, step), hits in sorted(seen.items())
    ]


def _pairs_of_a_family(predictions: Iterable[Prediction]) -> Iterable[tuple[Prediction, Prediction]]:
    groups: dict[tuple[str, str], list[Prediction]] = {}
    for p in predictions:
        if p.says_much and p.row.measured_ms > p.dispatch_ms:
            shapes = " ".join(str(array) for array in p.row.case.arrays)
            groups.setdefault((p.row.group, shapes), []).append(p)
    for own in groups.values():
        for one, other in itertools.combinations(own, 2):
            if one.row.identity != other.row.identity:  # else one program under two names
                yield one, other
