"""Which points fit in VMEM, by compiling as few as it takes. Pure.

The assumption: every knob that is a number has one direction, in which a kernel never needs less of what VMEM it may
use. Which one is measured first: each knob at its smallest and its largest value, all others at their smallest. Then
what overflows settles every point that needs no less, and what fits every point that needs no more. The largest points
that fit and the smallest that overflow are always compiled: nothing settles them but themselves. :func:`broken` says
where a sweep that was compiled in full contradicts the assumption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ratchet.values import Literal, Point
from ratchet.values.points import Fit
from ratchet.values.status import Status

Compile = Callable[[Point], Fit]
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


def search(points: Sequence[Point], chip: str, compile_point: Compile, *, every: bool = False) -> Iterator[Fit]:
    """Every point's outcome, as it is known; ``every`` compiles all of them."""
    if every:
        yield from map(compile_point, points)
        return
    probes = {_key(point): compile_point(point) for point in _probes(points)}
    yield from probes.values()
    directions = measured(points, list(probes.values()))
    open_points = [point for point in points if _key(point) not in probes]
    news = list(probes.values())
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


def measured(points: Sequence[Point], probes: Sequence[Fit]) -> Directions:
    """The direction of every knob, from :class:`Fit` of the points that :func:`_probes` named."""
    known = {_key(fit.point): fit for fit in probes}
    base = known.get(_key(_base(points))) if points else None
    directions: dict[str, int] = {}
    for name, point in _turned(points).items():
        fit = known.get(_key(point))
        if base is None or fit is None or base.fits is None or fit.fits is None or base.is_empty or fit.is_empty:
            directions[name] = 0
        elif base.vmem is not None and fit.vmem is not None:
            directions[name] = -1 if _need(fit) < _need(base) else 1
    return directions


def _need(fit: Fit) -> float:
    return fit.vmem.used_bytes / max(1, fit.vmem.limit_bytes) if fit.vmem else 0.0


def _probes(points: Sequence[Point]) -> list[Point]:
    """The points by which directions are measured; none where there is nothing to save."""
    turned = _turned(points)
    return [_base(points), *turned.values()] if turned and len(points) > len(turned) + 1 else []


def _base(points: Sequence[Point]) -> Point:
    """The first point with every number at its smallest."""
    numbers = _numbers(points)
    return {name: min(numbers[name]) if name in numbers else value for name, value in points[0].items()}  # type: ignore[type-var]


def _turned(points: Sequence[Point]) -> dict[str, Point]:
    """By knob, the first point with that one at its largest."""
    numbers = _numbers(points)
    base = _base(points) if points else {}
    return {name: {**base, name: max(values)} for name, values in numbers.items() if len(values) > 1}  # type: ignore[type-var]


def _numbers(points: Sequence[Point]) -> dict[str, set[Literal]]:
    names = points[0].keys() if points else ()
    values = {name: {point[name] for point in points} for name in names}
    return {name: own for name, own in values.items() if all(map(_is_number, own))}


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
    fitting, directions = [one for one in fits if one.fits and not one.is_empty], _directions(fits)
    top = [
        one
        for one in fitting
        if not any(
            one is not other and needs_at_most(one.point, other.point, directions) and one.point != other.point
            for other in fitting
        )
    ]
    return sorted(top, key=lambda one: -_need(one))


def broken(fits: Sequence[Fit]) -> list[tuple[Fit, Fit]]:
    """Pairs that contradict the assumption: what needs no more overflows, and what needs no less fits."""
    directions = _directions(fits)
    return [
        (small, large)
        for small in fits
        for large in fits
        if small.status is Status.VMEM_OVERFLOW and large.fits and needs_at_most(small.point, large.point, directions)
    ]


def _directions(fits: Sequence[Fit]) -> Directions:
    return measured([fit.point for fit in fits], fits)
