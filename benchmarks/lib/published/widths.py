"""Bands from errors of predictions: a width for each chip and regime, and how many held-out cases they hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.lib.published.evaluate import Prediction
from ratchet.account import band
from ratchet.chips import CHIPS

Key = tuple[str, str]
"""Chip and regime."""

DEVICE_KERNELS = 3
"""From so many kernels timed by a profiler on, wall clocks do not count for a band."""

LEAST_WIDTH = 0.02
"""No band is narrower: versions of the compiler differ by half of this."""

FEWEST = 5
"""A chip and regime with fewer timings has the band of one without."""

MOST_FACTOR = 2.0
"""A band is widened no further, even where kernels held out are not covered with it."""


@dataclass(frozen=True, kw_only=True)
class Width:
    """The band of one chip and regime."""

    width: float
    """Relative half-width."""
    count: int
    """The timings that it rests on; 0 where it is the widest of others."""


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How honest bands are: of cases held out, the share inside, and how wide the bands were."""

    chip: str
    regime: str
    count: int
    kernels: int
    inside: float
    width: float
    """Mean relative half-width."""


def widths(predictions: Iterable[Prediction], factors: Mapping[Key, float]) -> dict[Key, Width]:
    """Of every chip and regime that has timings. ``factors`` widen each: see :func:`inflation`."""
    return {
        key: Width(width=max(LEAST_WIDTH, factors.get(key, 1.0) * band.width_for(errors)), count=len(errors))
        for key, errors in _errors(predictions).items()
    }


def kept(predictions: Sequence[Prediction], factors: Mapping[Key, float]) -> dict[Key, Width]:
    """Every chip and regime, as verdicts use it: :func:`widths`.

    No wider than the largest error that was seen, except of one or two kernels: theirs say little of others.
    One with too few timings gets the widest of its chip and of its regime on other chips; a chip with too few in every
    regime the widest of all.
    """
    own = _errors(predictions)
    kernels: dict[Key, set[str]] = {}
    for p in counted(predictions):
        kernels.setdefault(p.key, set()).add(p.row.group)

    def most(key: Key) -> float:
        return math.expm1(max(own[key])) if len(kernels[key]) >= DEVICE_KERNELS else math.inf

    table = {
        key: Width(width=max(LEAST_WIDTH, min(entry.width, most(key))), count=entry.count)
        for key, entry in widths(predictions, factors).items()
        if entry.count >= FEWEST
    }
    timed = {chip for chip, _ in table}

    def widest(chip: str, name: str) -> Width:
        near = [w.width for key, w in table.items() if chip not in timed or chip in key or name in key]
        return Width(width=max(near, default=0.0), count=0)

    return {(chip, name): table.get((chip, name)) or widest(chip, name) for chip in CHIPS for name in band.REGIMES}


def _errors(predictions: Iterable[Prediction]) -> dict[Key, list[float]]:
    own: dict[Key, list[float]] = {}
    for p in counted(predictions):
        own.setdefault(p.key, []).append(p.error)
    return own


def counted(predictions: Iterable[Prediction]) -> list[Prediction]:
    """Those that bands are made from: of a chip and regime with enough kernels timed by a profiler, these alone."""
    kept = [p for p in predictions if p.says_much]
    kernels: dict[Key, set[str]] = {}
    for p in kept:
        if p.row.case.timer == "device":
            kernels.setdefault(p.key, set()).add(p.row.case.kernel)
    return [p for p in kept if p.row.case.timer == "device" or len(kernels.get(p.key, ())) < DEVICE_KERNELS]


def inflation(predictions: Sequence[Prediction]) -> dict[Key, float]:
    """Least factor on each width, in hundredths from 1 on, with which kernels held out are covered.

    The errors of one kernel are alike, so a band made from other kernels alone is somewhat too narrow for it. Where
    there is only one kernel, no other says how much: the factor is 1.
    """
    factors = {c.key: 1.0 for c in _checked(predictions, {}) if c.kernels > 1}
    while True:
        narrow = {c.key for c in _checked(predictions, factors) if c.inside < band.LEVEL}
        narrow = {key for key in narrow & factors.keys() if factors[key] < MOST_FACTOR}
        if not narrow:
            return factors
        for key in narrow:
            factors[key] = round(factors[key] + 0.01, 2)


@dataclass(frozen=True, kw_only=True)
class _Checked:
    key: Key
    hits: tuple[bool, ...]
    spans: tuple[float, ...]
    kernels: int

    @property
    def inside(self) -> float:
        return sum(self.hits) / len(self.hits)


def _checked(predictions: Sequence[Prediction], factors: Mapping[Key, float]) -> list[_Checked]:
    """Leave-one-kernel-out: bands from all other kernels, checked on the kernel."""
    rows = counted(predictions)
    everything = widths(rows, factors)
    seen: dict[Key, list[tuple[bool, float, str]]] = {}
    for group in sorted({p.row.group for p in rows}):
        table = widths([p for p in rows if p.row.group != group], factors)
        for p in rows:
            if p.row.group == group:
                width = (table.get(p.key) or everything[p.key]).width
                seen.setdefault(p.key, []).append((p.error <= math.log1p(width), width, group))
    return [
        _Checked(
            key=key,
            hits=tuple(hit for hit, _, _ in own),
            spans=tuple(width for _, width, _ in own),
            kernels=len({group for _, _, group in own}),
        )
        for key, own in sorted(seen.items())
    ]


def coverage(predictions: Sequence[Prediction], factors: Mapping[Key, float]) -> list[Coverage]:
    """Per chip and regime, then all together. A kernel alone in its regime is checked against itself."""
    checked = _checked(predictions, factors)
    rows = [(*c.key, c.hits, c.spans, c.kernels) for c in checked]
    hits = tuple(hit for c in checked for hit in c.hits)
    spans = tuple(width for c in checked for width in c.spans)
    rows.append(("all", "", hits, spans, len({p.row.group for p in counted(predictions)})))
    return [
        Coverage(
            chip=chip,
            regime=regime,
            count=len(own),
            kernels=kernels,
            inside=sum(own) / len(own),
            width=sum(wide) / len(wide),
        )
        for chip, regime, own, wide, kernels in rows
    ]
