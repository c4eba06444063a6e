"""Bands from errors of predictions: a width for each chip and regime, and how many held-out cases they hold.

Errors of one kernel are alike, so it is kernels that are counted, and few of them are known of any chip and regime. A
band is Student's prediction interval for one more kernel. Its scale is estimated from the kernels of the same chip and
regime and, as if from :data:`BORROWED` more, from those that share one of both. It is wide by itself where few are
known, and there is a band where none is. The scale of a kernel is that of the error which nine in ten of its timings
stay below, or the largest of fewer: a timing that was published wrongly counts as one, however far it is off. Errors
are taken around zero: a bias is an error, too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.lib.published.evaluate import Prediction
from benchmarks.lib.published.timed import grouped
from ratchet.tpu.account import band
from ratchet.tpu.chips import CHIPS

Key = tuple[str, str]
"""Chip and regime."""

Kernels = Mapping[Key, Mapping[str, float]]
"""Per chip and regime, the square of the scale of each kernel's logarithmic errors."""

LEAST_WIDTH = 0.02
"""No band is narrower: versions of the compiler differ by half of this."""

BORROWED = 2
"""For so many kernels counts what is known of the same chip in other regimes and of the same regime on other chips.
With more, the band of a chip and regime that was timed may hold less than nine in ten of its timings, each held out."""


@dataclass(frozen=True, kw_only=True)
class Width:
    """The band of one chip and regime."""

    width: float
    """Relative half-width."""
    count: int
    """The timings of that chip and regime that it rests on."""
    kernels: int
    """Of so many kernels."""


def widths(predictions: Sequence[Prediction]) -> dict[Key, Width]:
    """The bands of every chip and regime, as verdicts use them; none without timings."""
    rows = counted(predictions)
    if not rows:
        return {}
    squares = _squares(rows)
    counts = Counter(p.key for p in rows)
    return {
        key: Width(width=width_for(squares, key), count=counts[key], kernels=len(squares.get(key, ())))
        for key in ((chip, regime) for chip in CHIPS for regime in band.REGIMES)
    }


def width_for(squares: Kernels, key: Key) -> float:
    """Relative half-width that holds the timings of one more kernel with probability ``band.LEVEL``.

    Raises:
        ValueError: without any kernel.
    """
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    own = list(squares.get(key, {}).values())
    known = BORROWED + len(own)
    mean = (sum(own) + BORROWED * _near(squares, key)) / known
    return max(LEAST_WIDTH, math.expm1(float(stdtrit(known, (1 + band.LEVEL) / 2)) * math.sqrt(mean)))


def _near(squares: Kernels, key: Key) -> float:
    """Mean over the kernels of a chip in all regimes and of a regime on all chips; over all where there is none."""
    near = [
        square for other, own in squares.items() if other[0] == key[0] or other[1] == key[1] for square in own.values()
    ]
    chosen = near or [square for own in squares.values() for square in own.values()]
    if not chosen:
        raise ValueError("no errors to make a band from")
    return float(np.mean(chosen))


def _squares(predictions: Iterable[Prediction]) -> dict[Key, dict[str, float]]:
    return {
        key: {kernel: scale([p.error for p in own]) ** 2 for kernel, own in grouped(same, kernel_of).items()}
        for key, same in grouped(predictions, lambda p: p.key).items()
    }


def scale(errors: Sequence[float]) -> float:
    """Standard deviation of normal errors around zero whose order statistic for ``band.LEVEL`` is that of ``errors``.

    The k-th in size of n errors has a share k / (n + 1) below it on average: a half where there is one.
    """
    from scipy.special import ndtri

    count = len(errors)
    place = min(count, math.ceil((count + 1) * band.LEVEL))
    return sorted(errors)[place - 1] / float(ndtri((1 + place / (count + 1)) / 2))


def kernel_of(p: Prediction) -> str:
    """What is one kernel: its timings have errors that are alike."""
    return f"{p.row.case.family}: {p.row.case.kernel}"


def counted(predictions: Iterable[Prediction]) -> list[Prediction]:
    """Those that bands are made from: of a chip and regime that a profiler timed, its timings alone."""
    kept = [p for p in predictions if p.says_much]
    profiled = {p.key for p in kept if p.row.case.timer == "device"}
    return [p for p in kept if p.row.case.timer == "device" or p.key not in profiled]


def coverage(predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    """How honest bands are, per chip and regime, then all together: made from the others, checked on each kernel.

    ``inside`` is the share of cases inside, ``half-width`` the mean relative one, and ``inside kept`` the share inside
    the bands that verdicts use, which the kernels themselves are part of. A kernel without any other is checked against
    itself.
    """
    rows = counted(predictions)
    if not rows:
        return []
    squares = _squares(rows)
    seen: dict[Key, list[tuple[bool, float, bool]]] = {}
    for p in rows:
        own = {kernel: square for kernel, square in squares[p.key].items() if kernel != kernel_of(p)}
        others = {**squares, p.key: own}
        width = width_for(others if any(others.values()) else squares, p.key)
        kept = width_for(squares, p.key)
        seen.setdefault(p.key, []).append((p.error <= math.log1p(width), width, p.error <= math.log1p(kept)))
    parts = [(*key, checked, len(squares[key])) for key, checked in sorted(seen.items())]
    everything = [one for _, _, checked, _ in parts for one in checked]
    parts.append(("all", "", everything, len({kernel_of(p) for p in rows})))
    table = []
    for chip, regime, checked, kernels in parts:
        inside, width, inside_kept = (float(mean) for mean in np.mean(checked, axis=0))
        counts = {"chip": chip, "bound by": regime, "cases": len(checked), "kernels": kernels}
        table.append({**counts, "inside": inside, "half-width": width, "inside kept": inside_kept})
    return table
