"""The fastest of many points, modelled: what overflows VMEM is mostly not compiled. Pure.

Overflows are settled as ``ratchet.tune.fit`` does it. A point that fits has to be compiled all the same, to be
modelled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from ratchet.tune.fit import search
from ratchet.values import Literal, Point
from ratchet.values.points import Fit, Trial
from ratchet.values.status import Status

TOP = 5
"""Points on a shortlist, at least."""


def run(points: Sequence[Point], chip: str, compile_point: Callable[[Point], Trial]) -> Iterator[Trial]:
    """Every point's trial, as it is known."""
    done: dict[tuple[tuple[str, type, Literal], ...], Trial] = {}

    def compiled(point: Point) -> Fit:
        trial = done[_key(point)] = compile_point(point)
        return Fit(point=point, chip=chip, status=_fitting(trial), reason=trial.reason, compiled=True, vmem=trial.vmem)

    for fit in search(points, chip, compiled):
        if fit.compiled:
            yield done[_key(fit.point)]
        elif fit.fits:
            yield compile_point(fit.point)
        else:
            yield Trial(point=fit.point, status=fit.status, compiled=False)


def _fitting(trial: Trial) -> Status:
    """What a trial says of VMEM: a program that compiles fits, whether or not it can be modelled."""
    return Status.PASS if trial.vmem is not None and trial.status is not Status.VMEM_OVERFLOW else trial.status


def _key(point: Point) -> tuple[tuple[str, type, Literal], ...]:
    return tuple((name, type(value), value) for name, value in sorted(point.items()))


def ranked(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """The fastest first, then what has no latency."""
    return tuple(sorted(trials, key=lambda one: math.inf if one.latency_ms is None else one.latency_ms))


def shortlist(trials: Sequence[Trial], same: Callable[[Trial, Trial], bool], *, least: int = TOP) -> tuple[Trial, ...]:
    """Of ranked trials, those for which ``same`` as the best holds, and at least the ``least`` best."""
    modelled = [trial for trial in trials if trial.latency_ms is not None]
    return tuple(trial for place, trial in enumerate(modelled) if place < least or same(trial, modelled[0]))
