"""Cases with tapes and constants -> predictions, in sample and cross-validated."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.lib.published import errors
from benchmarks.lib.published.timed import Chips, Fits, Timed, grouped, modelled_ms, positions, with_values
from ratchet.tpu.account import band
from ratchet.tpu.chips import CHIPS, V5E

LEAST_WALL_MS = 0.5
"""Wall-clock timings under this say little of the program: the dispatch is most of them."""


WALL_JITTER_MS = 0.025
"""By how much a wall clock's constant differs from call to call: the standard deviation of the errors of compute-bound
rows timed so. With a profiler's clock these are within a per cent or two."""


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
    def measured_device_ms(self) -> float:
        """Measured, without the wall clock's constant."""
        return self.row.measured_ms - self.dispatch_ms

    @property
    def error(self) -> float:
        """Size of the logarithmic error beyond what a wall clock's jitter explains: what bands are made from.

        Infinite where the clock shows less than its constant.
        """
        if self.measured_device_ms <= 0:
            return math.inf
        jitter = WALL_JITTER_MS / self.row.measured_ms if self.row.case.timer == "wall" else 0.0
        return max(0.0, abs(math.log(self.device_ms / self.measured_device_ms)) - jitter)

    @property
    def says_much(self) -> bool:
        """False for wall-clock timings so short that the dispatch is most of them."""
        return self.row.case.timer == "device" or self.row.measured_ms >= LEAST_WALL_MS

    @property
    def key(self) -> tuple[str, str]:
        """Chip and regime: what has a band of its own."""
        return self.row.case.chip, self.regime

    @property
    def source(self) -> str:
        """What errors are summarised by."""
        return f"{self.row.case.family} ({self.row.case.chip}, {self.row.case.timer})"


def predict(rows: Sequence[Timed], chips: Chips, dispatch: Mapping[str, float] | None = None) -> list[Prediction]:
    """Predictions with one set of constants.

    Args:
        rows: timings with their tapes.
        chips: constants per chip.
        dispatch: ms per source with a wall clock, on the v5e; for others, and without it for all, each row gets the
            constant that fits the other rows of its source on its chip.
    """
    device = modelled_ms(rows, chips)
    added = np.zeros(len(rows))
    for (source, chip, timer), which in positions([row.clock for row in rows]).items():
        if timer == "wall" and dispatch is not None and source in dispatch and chip == V5E.name:
            added[which] = dispatch[source]
        elif timer == "wall":
            added[which] = errors.dispatch_left_out_ms([rows[i].measured_ms for i in which], device[which].tolist())
    return [
        Prediction(row=row, device_ms=float(ms), dispatch_ms=float(extra), regime=_regime(row, chips, float(ms)))
        for row, ms, extra in zip(rows, device, added, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Predictions by one set of constants: of rows that these were fitted without, and of others of their kernel."""

    left_out: frozenset[str]
    """Numbers of the rows that were left out."""
    predictions: tuple[Prediction, ...]

    @property
    def held_out(self) -> tuple[Prediction, ...]:
        """Of the rows that were left out."""
        return tuple(p for p in self.predictions if p.row.case.number in self.left_out)


def fold_of(predictions: Iterable[Prediction]) -> Fold:
    """Of rows that no constant was fitted on."""
    own = tuple(predictions)
    return Fold(left_out=frozenset(p.row.case.number for p in own), predictions=own)


def folds(
    rows: Sequence[Timed], chips: Chips, fits: Fits, group_of: Callable[[Timed], str] = lambda row: row.group
) -> list[Fold]:
    """Rows predicted by constants that were fitted without their group; wall constants by the other rows.

    Args:
        rows: the calibration rows.
        chips: constants for groups that no fit left out.
        fits: values of the v5e fitted without a group.
        group_of: what a row is left out with.
    """
    made = []
    for group, own in sorted(grouped(rows, group_of).items()):
        # A source may have several kernels, and one wall-clock constant: predict those too.
        walls = {row.case.family for row in own if row.case.timer == "wall"}
        kernels = {(row.case.family, row.case.kernel, row.case.chip) for row in own}
        with_them = [
            row
            for row in rows
            if (row.case.family, row.case.kernel, row.case.chip) in kernels
            or (row.case.timer == "wall" and row.case.family in walls)
        ]
        without = with_values(chips, fits[group]) if group in fits else chips
        left_out = frozenset(row.case.number for row in own)
        made.append(Fold(left_out=left_out, predictions=tuple(predict(with_them, without))))
    return made


def _regime(row: Timed, chips: Chips, ms: float) -> str:
    chip, facts = CHIPS[row.case.chip], row.tape.facts
    constants = chips[chip.name]
    cycles = ms * 1e-3 * chip.clock_hz
    per_cycle = constants.hbm_efficiency * chip.hbm_bytes_per_s / chip.cores / chip.clock_hz
    return band.regime_of(
        facts["hbm_bytes"] / per_cycle / cycles,
        1 - facts["executed_bundles"] / cycles,
        facts["mxu_busy_cycles"] / cycles,
    )


def summarised(predictions: Sequence[Prediction]) -> errors.Summary:
    """Their errors, as the timers show them."""
    return errors.summarise([p.row.measured_ms for p in predictions], [p.modelled_ms for p in predictions])


def rank_correlation(predictions: Iterable[Prediction], *, device: bool = False) -> float:
    """Spearman's over programs, as their timer shows it, or with ``device`` without what a wall clock adds.

    Timings of one program, under whatever names, are averaged first.
    """
    programs = grouped(predictions, lambda p: p.row.identity).values()
    if device:
        measured = [sum(p.measured_device_ms for p in own) / len(own) for own in programs]
        return errors.rank_correlation(measured, [own[0].device_ms for own in programs])
    measured = [sum(p.row.measured_ms for p in own) / len(own) for own in programs]
    return errors.rank_correlation(measured, [sum(p.modelled_ms for p in own) / len(own) for own in programs])
