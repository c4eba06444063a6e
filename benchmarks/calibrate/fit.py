"""Fits the machine's constants to published timings: least squares on log ratios, around prior values."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.calibrate import batch
from benchmarks.lib.published import errors
from benchmarks.lib.published.timed import PARAMETERS, Chips, Fits, Timed, modelled_ms, walls, with_values
from ratchet.tpu.chips import V5E

HEAD_EVENTS = 2_000
"""How constants change the time of a longer tape is judged by its beginning: such programs repeat themselves."""

STARTS, SEED = 6, 0
"""A fit begins at the priors, and at so many points less one that are drawn from them."""

TIED = 0.5
"""Fits that cost so little more than the best are as good: half a square, one standard deviation of one parameter."""

DEVICE_SIGMA, WALL_SIGMA, WALL_SIGMA_MS = 0.01, 0.03, 0.01
"""What a profiler's device time and a wall clock are believed to be worth: relative, and a jitter in ms besides."""

STEPS = 6
"""Most steps of one fit."""

RADII = (10.0, 2.0, 1.0, 0.5, 0.2)
"""How far a step may go, in widths of the priors: the best of these is taken."""

LEAST_GAIN = 0.05
"""Of the cost, half a sum of squares: a step that gains less ends a fit."""

LEAST = 1e-3
"""Of every value: none is negative."""

ROUGHNESS = 0.5
"""By how much the first step of a fit may raise the cost, which is rough because cycles are whole numbers."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Fitted values, in the order of ``PARAMETERS``, and what came with them."""

    values: tuple[float, ...]
    left_out: Fits
    """By group."""
    without_kind: Fits
    """By kind of kernel."""
    spread: tuple[float, ...]
    """Jackknife standard error over the groups."""
    pinned: tuple[str, ...]
    """Per parameter, the kind of kernel whose timings depend on it most, with its share of what all say of it."""
    dispatch_ms: Mapping[str, float]
    """Per source with a wall clock."""


def fit(rows: Sequence[Timed], chips: Chips, say: Callable[[str], None], *, starts: int = STARTS) -> Fit:
    """Fits all parameters to rows of one chip; and again without each group, and without each kind.

    The cost has valleys, in which values differ far more than costs do. So every fit, the one on all rows and those
    that leave some out, begins at the same ``starts`` points, the priors and draws from them, and nowhere else: what
    comes out depends on the timings alone. Of the ends that cost as little as the least, that one is taken which is
    nearest to the mean of them all. What was left out has no part in it.

    Every fit is damped least squares. The machine is linearised anew after a step, because it is far from linear.
    """
    problem = _Problem(rows, chips)
    groups, kinds = [row.group for row in rows], [row.kind for row in rows]
    uses = {("all", ""): np.ones(len(rows), bool)}
    uses |= {("group", one): np.array([other != one for other in groups]) for one in sorted(set(groups))}
    uses |= {("kind", one): np.array([other != one for other in kinds]) for one in sorted(set(kinds))}
    begins = problem.begins(starts)
    ends = _together([problem.solve(begin, use) for use in uses.values() for begin in begins], problem.ms)
    chosen: dict[tuple[str, str], _Linear] = {}
    for number, (what, use) in enumerate(uses.items()):
        own = ends[number * starts : (number + 1) * starts]
        costs = [problem.cost(end.ms, end.values, use) for end in own]
        chosen[what] = own[central(np.array([end.values for end in own]) / problem.width, costs)]
        listed = " ".join(f"{cost:.2f}" for cost in sorted(costs))
        say(f"without {' '.join(what)}: costs {listed}: " + ", ".join(f"{v:.5g}" for v in chosen[what].values))
    best = chosen["all", ""]
    left_out, without_kind = (
        {one: tuple(end.values.tolist()) for (kind, one), end in chosen.items() if kind == what}
        for what in ("group", "kind")
    )
    return Fit(
        values=tuple(best.values.tolist()),
        left_out=left_out,
        without_kind=without_kind,
        pinned=tuple(problem.pinned(best)),
        spread=tuple(errors.jackknife(list(left_out.values())).tolist()),
        dispatch_ms=problem.dispatch_ms(best),
    )


def central(points: np.ndarray, costs: Sequence[float]) -> int:
    """Of the points whose costs are as good as the least, which is nearest to their mean."""
    tied = np.flatnonzero(np.array(costs) <= min(costs) + TIED)
    apart = np.linalg.norm(points[tied] - points[tied].mean(0), axis=1)
    return int(tied[apart.argmin()])


@dataclass(frozen=True, kw_only=True)
class _Linear:
    """The model of every row around some values."""

    values: np.ndarray
    ms: np.ndarray
    slopes: np.ndarray
    """Of ``ms``, per parameter."""


Solving = Generator[np.ndarray, np.ndarray, _Linear]
"""Asks for milliseconds [sets, rows] of sets of values [sets, parameters], and ends with the best ones."""


def _together(jobs: Sequence[Solving], model: Callable[[np.ndarray], np.ndarray]) -> list[_Linear]:
    """What the jobs end with: all that they ask for at a time is modelled in one go."""
    ended: dict[int, _Linear] = {}
    asked = {number: next(job) for number, job in enumerate(jobs)}
    while asked:
        ms = np.split(model(np.concatenate(list(asked.values()))), np.cumsum([len(sets) for sets in asked.values()]))
        for number, own in zip(list(asked), ms, strict=False):
            try:
                asked[number] = jobs[number].send(own)
            except StopIteration as end:
                ended[number] = end.value
                del asked[number]
    return [ended[number] for number in range(len(jobs))]


class _Problem:
    def __init__(self, rows: Sequence[Timed], chips: Chips) -> None:
        self.rows, self.constants = rows, chips[V5E.name]
        self.prior = np.array([parameter.prior for parameter in PARAMETERS])
        self.width = np.array([parameter.prior_sigma for parameter in PARAMETERS])
        self.steps = np.array([parameter.step for parameter in PARAMETERS])
        self.measured = np.array([row.measured_ms for row in rows])
        self.sources, self.adds = walls(rows)
        wall = self.adds.any(axis=1)
        self.sigma = np.where(wall, np.hypot(WALL_SIGMA, WALL_SIGMA_MS / self.measured), DEVICE_SIGMA)
        programs = {row.program: row.tape for row in rows}
        self.heads = [tape.head(HEAD_EVENTS) for tape in programs.values()]
        self.place = [list(programs).index(row.program) for row in rows]
        self.whole = np.ones(len(rows))
        """Per row, the time of its tape over that of its head."""
        self.whole = modelled_ms(rows, with_values(chips, self.prior.tolist())) / self.ms(self.prior[None])[0]

    def begins(self, count: int) -> np.ndarray:
        """Values to begin at, [count, parameters]: the priors, and draws from them."""
        draws = np.random.default_rng(SEED).standard_normal((count, len(self.prior)))
        draws[0] = 0
        return np.maximum(self.prior + draws * self.width, LEAST)

    def ms(self, values: np.ndarray) -> np.ndarray:
        """Modelled milliseconds of every row, [sets, rows], for sets of values [sets, parameters]."""
        sets = {parameter.name: values[:, i] for i, parameter in enumerate(PARAMETERS)}
        return self.whole * batch.modelled_ms(self.heads, V5E, self.constants, sets)[:, self.place]

    def linearised(self, values: np.ndarray) -> Solving:
        """The model around ``values``."""
        moves = np.diag(self.steps)
        ms = yield values + np.concatenate([np.zeros_like(moves[:1]), moves, -moves])
        more, less = ms[1 : 1 + len(moves)], ms[1 + len(moves) :]
        return _Linear(values=values, ms=ms[0], slopes=(ms[0] * np.log(more / less)).T / (2 * self.steps))

    def solve(self, start: np.ndarray, use: np.ndarray) -> Solving:
        """The best values for the rows of ``use`` on the way from ``start``, these included."""
        best = linear = yield from self.linearised(start)
        cost = least = self.cost(linear.ms, start, use)
        bound = cost + ROUGHNESS
        for _ in range(STEPS):
            aims = np.array([self._aim(linear, use, radius) for radius in RADII])
            ms = yield aims
            costs = [self.cost(own, values, use) for own, values in zip(ms, aims, strict=True)]
            nearest = int(np.argmin(costs))
            if costs[nearest] > bound:
                break
            linear, cost = (yield from self.linearised(aims[nearest])), costs[nearest]
            bound = cost - LEAST_GAIN
            if cost < least:
                best, least = linear, cost
        return best

    def _aim(self, linear: _Linear, use: np.ndarray, radius: float) -> np.ndarray:
        """Where the linear model is best, no farther than about ``radius``."""
        count = len(PARAMETERS)
        rise = np.hstack([linear.slopes, self.adds])[use]
        pulls = np.hstack([np.diag(1 / self.width), np.zeros((count, len(self.sources)))])

        def shown(x: np.ndarray) -> np.ndarray:
            return np.maximum(linear.ms + linear.slopes @ (x[:count] - linear.values) + self.adds @ x[count:], 1e-6)

        def residuals(x: np.ndarray) -> np.ndarray:
            data = np.log(shown(x) / self.measured)[use] / self.sigma[use]
            away = (x[:count] - linear.values) / (radius * self.width)
            return np.concatenate([data, (x[:count] - self.prior) / self.width, away])

        def jacobian(x: np.ndarray) -> np.ndarray:
            return np.vstack([rise / (shown(x) * self.sigma)[use, None], pulls, pulls / radius])

        start = np.concatenate([linear.values, np.full(len(self.sources), 0.2)])
        scale = np.concatenate([self.width, np.full(len(self.sources), 0.02)])
        return np.maximum(_solved(residuals, start, jacobian, scale).x[:count], LEAST)

    def cost(self, ms: np.ndarray, values: np.ndarray, use: np.ndarray) -> float:
        """Of values that make the rows take ``ms``, with the dispatch constants that make it least."""
        away = (values - self.prior) / self.width

        def residuals(x: np.ndarray) -> np.ndarray:
            data = np.log(np.maximum(ms + self.adds @ x, 1e-6) / self.measured) / self.sigma
            return np.concatenate([data[use], away])

        def jacobian(x: np.ndarray) -> np.ndarray:
            data = self.adds / (np.maximum(ms + self.adds @ x, 1e-6) * self.sigma)[:, None]
            return np.vstack([data[use], np.zeros((len(away), len(self.sources)))])

        none = np.zeros(len(self.sources))
        if not self.sources:
            return float((np.sqrt(1 + residuals(none) ** 2) - 1).sum())
        return float(_solved(residuals, none + 0.2, jacobian, none + 0.02).cost)

    def dispatch_ms(self, best: _Linear) -> dict[str, float]:
        """Per source with a wall clock, the constant that makes its absolute errors least."""
        timed = dict(zip(self.sources, self.adds.T > 0, strict=True))
        return {
            source: errors.dispatch_ms(self.measured[own].tolist(), best.ms[own].tolist())
            for source, own in timed.items()
        }

    def pinned(self, best: _Linear) -> list[str]:
        """Per parameter, the kind with the largest share of the Fisher information."""
        information = (best.slopes / (best.ms * self.sigma)[:, None]) ** 2
        kinds = sorted({row.kind for row in self.rows})
        shares = np.array([information[[row.kind == kind for row in self.rows]].sum(0) for kind in kinds])
        words = []
        for i in range(len(PARAMETERS)):
            most = int(shares[:, i].argmax())
            whole = shares[:, i].sum()
            words.append(f"{kinds[most]} {shares[most, i] / whole:.0%}" if whole else "nothing")
        return words


def _solved(residuals: Any, start: np.ndarray, jacobian: Any, scale: np.ndarray) -> Any:
    """Least squares with a soft loss: a wall clock has outliers that say nothing of the machine."""
    from scipy.optimize import least_squares  # type: ignore[import-untyped]

    return least_squares(residuals, start, jac=jacobian, x_scale=scale, loss="soft_l1")
