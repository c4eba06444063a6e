"""Errors of modelled latencies: statistics, rank correlation and the one constant that a wall clock adds. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Relative errors of some cases; signed ones are modelled over measured minus one."""

    count: int
    mean: float
    median: float
    largest: float
    bias: float

    def columns(self, *names: str) -> dict[str, int | str]:
        """Cells of a table: how many, and these of the errors, in per cent."""
        signs = {"bias": "+"}
        return {"rows": self.count} | {name: f"{getattr(self, name):{signs.get(name, '')}.2%}" for name in names}


def summarise(measured_ms: Sequence[float], modelled_ms: Sequence[float]) -> Summary:
    """Raises ValueError without cases."""
    if not measured_ms or len(measured_ms) != len(modelled_ms):
        raise ValueError(f"{len(measured_ms)} measured and {len(modelled_ms)} modelled latencies")
    signed = np.asarray(modelled_ms) / np.asarray(measured_ms) - 1
    size = np.abs(signed)
    return Summary(
        count=len(measured_ms),
        mean=float(size.mean()),
        median=float(np.median(size)),
        largest=float(size.max()),
        bias=float(signed.mean()),
    )


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's, ties at their average rank. 1 for fewer than two values, 0 where all values of one are equal."""
    if len(a) < 2:
        return 1.0
    if min(len(set(a)), len(set(b))) == 1:
        return 0.0
    return float(np.corrcoef(*(pd.Series(values).rank() for values in (a, b)))[0, 1])


def dispatch_ms(measured_ms: Sequence[float], modelled_ms: Sequence[float]) -> float:
    """The constant that, added to all modelled latencies, makes the sum of absolute relative errors least.

    Never negative: a call takes no less than its program.
    """
    measured = np.asarray(measured_ms, float)
    rest = measured - np.asarray(modelled_ms, float)
    order = np.argsort(rest)
    weight = np.cumsum(1 / measured[order])
    middle = order[int(np.searchsorted(weight, weight[-1] / 2))]
    return max(0.0, float(rest[middle]))


def dispatch_left_out_ms(measured_ms: Sequence[float], modelled_ms: Sequence[float]) -> list[float]:
    """Per case, :func:`dispatch_ms` of all the others (of itself where it is alone)."""
    if len(measured_ms) < 2:
        return [dispatch_ms(measured_ms, modelled_ms)] * len(measured_ms)
    every = range(len(measured_ms))
    return [
        dispatch_ms([measured_ms[j] for j in every if j != i], [modelled_ms[j] for j in every if j != i]) for i in every
    ]


def jackknife(without: Sequence[Sequence[float]]) -> np.ndarray:
    """Standard error of each value, from what a fit gives without each group in turn."""
    table, count = np.array(without), len(without)
    return np.sqrt((count - 1) / count * ((table - table.mean(0)) ** 2).sum(0))
