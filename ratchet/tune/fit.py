"""Which points fit in VMEM, by compiling as few as it takes, and the fastest of them. Pure.

The assumption: every knob that is a number has one direction, in which a kernel never needs less of what VMEM it may
use. Which one is measured first: each knob at its smallest and its largest value, all others at their smallest. Then
what overflows settles every point that needs no less, and what fits every point that needs no more. The largest points
that fit and the smallest that overflow are always compiled: nothing settles them but themselves. :func:`broken` says
where a sweep that was compiled in full contradicts the assumption. A point that fits has to be compiled all the same
to be modelled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ratchet.values import Literal, Point
from ratchet.values.points import Fit, Trial
from ratchet.values.status import Status

TOP = 5
"""Points on a shortlist, at least."""
Directions = Mapping[str, int]
"""By knob: 1 where a larger value needs no less, -1 where it needs no more; 0 where points are not compared."""


def needs_at_most(one: Point, other: Point, directions: Directions) -> bool:
    """Whether ``one`` needs no more than ``other``, by the assumption."""
    return one.keys() == other.keys() and all(
        _at_most(value, other[name], directions.get(name, 1)) for name, value in one.items()
    )


def _at_most(one: Literal, other: Literal, direction: int) -> bool:
    if direction and _is_number(one) and _is_number(other):
        return (one <= other) if direction > 0 else (one >= other)  # type: ignore[operator]
    return type(one) is type(other) and one == other


def _is_number(value: Literal) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def search(
    points: Sequence[Point], chip: str, compile_point: Callable[[Point], Fit], *, every: bool = False
) -> Iterator[Fit]:
    """Every point's outcome, as it is known; ``every`` compiles all of them."""
    if every:
        yield from map(compile_point, points)
        return
    base, ends = _corners(points)
    probes = [base, *ends.values()] if ends and len(points) > len(ends) + 1 else []  # else there is nothing to save
    news = [compile_point(point) for point in probes]
    yield from news
    directions = _directions(points, news)
    open_points = [point for point in points if _key(point) not in set(map(_key, probes))]
    while open_points or news:
        for fit in news:
            settled = [point for point in open_points if _settles(fit, point, directions)]
            open_points = [point for point in open_points if point not in settled]
            yield from (Fit(point=point, chip=chip, status=fit.status, compiled=False) for point in settled)
        news = []
        if open_points:
            point = max(open_points, key=lambda one: _least_settled(one, open_points, directions))
            open_points.remove(point)
            news = [compile_point(point)]
            yield from news


def _directions(points: Sequence[Point], fits: Sequence[Fit]) -> Directions:
    """The direction of every knob, from the :class:`Fit` of each corner."""
    known = {_key(fit.point): fit for fit in fits}
    base, ends = _corners(points)
    first = known.get(_key(base))
    directions: dict[str, int] = {}
    for name, point in ends.items():
        fit = known.get(_key(point))
        if first is None or fit is None or first.fits is None or fit.fits is None or first.is_empty or fit.is_empty:
            directions[name] = 0
        elif first.vmem is not None and fit.vmem is not None:
            directions[name] = -1 if _need(fit) < _need(first) else 1
    return directions


def _need(fit: Fit) -> float:
    return fit.vmem.used_bytes / max(1, fit.vmem.limit_bytes) if fit.vmem else 0.0


def _corners(points: Sequence[Point]) -> tuple[Point, dict[str, Point]]:
    """The first point with every number at its smallest; and by knob, that point with the knob at its largest."""
    first = points[0] if points else {}
    values = {name: {point[name] for point in points} for name in first}
    numbers = {name: own for name, own in values.items() if all(map(_is_number, own))}
    base = {name: min(numbers.get(name, {value})) for name, value in first.items()}  # type: ignore[type-var]
    return base, {name: {**base, name: max(own)} for name, own in numbers.items() if len(own) > 1}  # type: ignore[type-var]


def _key(point: Point) -> tuple[tuple[str, type, Literal], ...]:
    return tuple((name, type(value), value) for name, value in sorted(point.items()))


def _settles(fit: Fit, point: Point, directions: Directions) -> bool:
    if fit.fits is None or fit.is_empty:
        return False
    if fit.fits:
        return needs_at_most(point, fit.point, directions)
    return needs_at_most(fit.point, point, directions)


def _least_settled(point: Point, others: Sequence[Point], directions: Directions) -> int:
    """How many others a point settles at least, whichever way it turns out."""
    above = sum(needs_at_most(point, one, directions) for one in others)
    return min(above, sum(needs_at_most(one, point, directions) for one in others))


def largest(fits: Sequence[Fit]) -> list[Fit]:
    """Points that fit and are below no other that does; what needs most VMEM first."""
    directions = _directions([fit.point for fit in fits], fits)
    fitting = sorted((one for one in fits if one.fits and not one.is_empty), key=lambda one: -_need(one))
    points = [one.point for one in fitting]
    return [
        one
        for one in fitting
        if not any(one.point != other and needs_at_most(one.point, other, directions) for other in points)
    ]


def broken(fits: Sequence[Fit]) -> list[tuple[Fit, Fit]]:
    """Pairs that contradict the assumption: what needs no more overflows, and what needs no less fits."""
    directions = _directions([fit.point for fit in fits], fits)
    return [
        (small, large)
        for small in fits
        for large in fits
        if small.status is Status.VMEM_OVERFLOW and large.fits and needs_at_most(small.point, large.point, directions)
    ]


def modelled(points: Sequence[Point], chip: str, compile_point: Callable[[Point], Trial]) -> Iterator[Trial]:
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


def ranked(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """The fastest first, then what has no latency."""
    return tuple(sorted(trials, key=lambda one: math.inf if one.latency_ms is None else one.latency_ms))


def shortlist(trials: Sequence[Trial], same: Callable[[Trial, Trial], bool], *, least: int = TOP) -> tuple[Trial, ...]:
    """Of ranked trials, those for which ``same`` as the best holds, and at least the ``least`` best."""
    known = [trial for trial in trials if trial.latency_ms is not None]
    return tuple(trial for place, trial in enumerate(known) if place < least or same(trial, known[0]))
