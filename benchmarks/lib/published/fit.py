"""Fits the machine's constants to published timings: least squares on log ratios, around prior values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.lib.published import errors
from benchmarks.lib.published.builders import kind_of
from benchmarks.lib.published.cases import Case
from benchmarks.lib.published.tape import Tape
from ratchet.chips import CHIPS
from ratchet.chips.constants import Constants

Chips = Mapping[str, Constants]
"""Constants by name of the chip."""

MOST_EVENTS = 60_000
"""Longer tapes take most of the time and repeat what shorter ones say: for fits that replay every tape many times."""

HEAD_EVENTS = 6_000
"""How constants change the time of a longer tape is judged by its beginning: such programs repeat themselves."""

DEVICE_SIGMA, WALL_SIGMA, WALL_SIGMA_MS = 0.01, 0.03, 0.01
"""What a profiler's device time and a wall clock are believed to be worth: relative, and a jitter in ms besides."""

STEPS = 6
"""Most steps of one fit."""

RADII = (10.0, 2.0, 1.0, 0.5, 0.2)
"""How far a step may go, in widths of the priors: the best of these is taken."""

LEAST_GAIN = 0.05
"""Of the cost, half a sum of squares: a step that gains less ends a fit."""

ROUGHNESS = 0.5
"""By how much the first step of a fit that leaves rows out may raise the cost, which is rough because cycles are whole
numbers: it has to leave the values of the fit on all rows before it is known whether better ones are near."""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One constant that is fitted."""

    chips: tuple[str, ...]
    """Chips that share it."""
    name: str
    prior: float
    prior_sigma: float
    step: float
    """For finite differences, to both sides: cycles are whole numbers, so a small one would measure rounding."""

    @property
    def label(self) -> str:
        return f"{self.name} ({', '.join(self.chips)})"


def _v5e(name: str, prior: float, sigma: float) -> Parameter:
    return Parameter(chips=("v5e",), name=name, prior=prior, prior_sigma=sigma, step=sigma / 4)


# Priors are wide, and known without the timings: 1.77 standard deviations is what the largest of 16 normal values is
# expected at, HBM's turnaround and the latency of a read are of the order of 50 and 300 ns, and half of a direction's
# bandwidth for a single write is a guess. What the timings do not pin down stays there, with a wide spread.
PARAMETERS = (
    _v5e("hbm_efficiency", 0.92, 0.03),
    _v5e("read_issue_cycles", 250, 100),
    _v5e("read_latency_cycles", 250, 100),
    _v5e("write_issue_cycles", 100, 100),
    _v5e("turnaround_cycles", 75, 40),
    _v5e("turnaround_bytes", 400e3, 200e3),
    _v5e("turnaround_width", 0.0, 0.1),
    _v5e("read_spread", 1.77, 0.5),
    _v5e("write_spread", 1.77, 1.5),
    _v5e("write_rate", 0.5, 0.2),
    _v5e("write_rate_bytes", 300e3, 150e3),
    _v5e("write_piece_cycles", 0.5, 0.5),
)

STREAMING = "tpu-kernels scale"
"""How kernels that do nothing but stream are named."""


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A case with its tape."""

    case: Case
    tape: Tape
    identity: str
    """Of the program."""

    @property
    def measured_ms(self) -> float:
        assert self.case.measured_ms is not None
        return self.case.measured_ms

    @property
    def program(self) -> tuple[str, bool]:
        """Equal for cases that take as long: they are replayed once."""
        return self.identity, self.case.older

    @property
    def kind(self) -> str:
        """Kind of kernel on one chip: what is left out together in the sternest check."""
        return f"{kind_of(self.case.kernel)}, {self.case.chip}"

    @property
    def group(self) -> str:
        """What is left out together when a fit is checked: one kernel of one source on one chip.

        Streaming is the only kernel that reads and writes as much, so its blocks of one width are left out together.
        """
        width = f", bn={self.case.config['bn']}" if self.case.kernel.startswith(STREAMING) else ""
        return f"{self.case.family}: {self.case.kernel}{width}, {self.case.chip}"


def modelled_ms(rows: Sequence[Timed], chips: Chips) -> np.ndarray:
    """Modelled device milliseconds of every row."""
    known: dict[tuple[str, bool], float] = {}
    for row in rows:
        if row.program not in known:
            chip = CHIPS[row.case.chip]
            cycles = row.tape.cycles(chip, chips[chip.name], copies_results=row.case.older)
            known[row.program] = cycles / chip.clock_hz * 1e3
    return np.array([known[row.program] for row in rows])


def with_values(chips: Chips, values: Sequence[float]) -> Chips:
    """``chips`` with the fitted parameters set to ``values``."""
    changed = dict(chips)
    for parameter, value in zip(PARAMETERS, values, strict=True):
        for chip in parameter.chips:
            update: dict[str, Any] = {parameter.name: float(value)}
            changed[chip] = replace(changed[chip], **update)
    return changed


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Fitted values, in the order of ``PARAMETERS``, and what came with them."""

    values: tuple[float, ...]
    left_out: Mapping[str, tuple[float, ...]]
    """Per group, the values of a fit without it."""
    without_kind: Mapping[str, tuple[float, ...]]
    """Per kind of kernel, the values of a fit without it."""
    spread: tuple[float, ...]
    """Jackknife standard error over the groups."""
    pinned: tuple[str, ...]
    """Per parameter, the kind of kernel whose timings depend on it most, with its share of what all say of it."""
    dispatch_ms: Mapping[str, float]
    """Per source with a wall clock."""


Fits = Mapping[str, tuple[float, ...]]
"""Per group or kind, the values of ``PARAMETERS`` fitted without it."""


def fit(rows: Sequence[Timed], chips: Chips, say: Callable[[str], None], *, known: Fits) -> Fit:
    """Fits all parameters from the present values on, the stored ones; and again without each group, and each kind.

    A fit that leaves rows out starts from the values of the fit on all rows, or from those that an earlier one without
    the same rows ended at, ``known``, where these are better: its cost has valleys, in which values differ far more
    than costs do.

    Every fit is damped least squares. The machine is linearised anew after a step, because it is far from linear: a fit
    that leaves much out and takes one linear step alone ends where its own rows are modelled worse than before.
    """
    problem = _Problem(rows, chips)
    everything = np.ones(len(rows), bool)
    best = problem.solve(problem.start, everything, slack=-LEAST_GAIN)
    say("all: " + ", ".join(f"{v:.5g}" for v in best.values))

    def without(what: str, of: Sequence[str]) -> dict[str, tuple[float, ...]]:
        left_out = {}
        for one in sorted(set(of)):
            use = np.array([other != one for other in of])
            start = problem.better(best, known[one], use) if one in known else best
            values = problem.solve(start, use, slack=ROUGHNESS).values
            left_out[one] = tuple(values.tolist())
            say(f"without {what} {one}: " + ", ".join(f"{v:.5g}" for v in values))
        return left_out

    left_out = without("group", [row.group for row in rows])
    table = np.array(list(left_out.values()))
    count = len(left_out)
    spread = np.sqrt((count - 1) / count * ((table - table.mean(0)) ** 2).sum(0))
    return Fit(
        values=tuple(best.values.tolist()),
        left_out=left_out,
        without_kind=without("kind", [row.kind for row in rows]),
        pinned=tuple(problem.pinned(best)),
        spread=tuple(spread.tolist()),
        dispatch_ms=problem.dispatch_ms(best),
    )


@dataclass(frozen=True, kw_only=True)
class _Linear:
    """The model of every row around some values."""

    values: np.ndarray
    ms: np.ndarray
    slopes: np.ndarray
    """Of ``ms``, per parameter."""


class _Problem:
    def __init__(self, rows: Sequence[Timed], chips: Chips) -> None:
        self.rows = rows
        self.chips = chips
        self.prior = np.array([parameter.prior for parameter in PARAMETERS])
        self.width = np.array([parameter.prior_sigma for parameter in PARAMETERS])
        self.measured = np.array([row.measured_ms for row in rows])
        wall = np.array([row.case.timer == "wall" for row in rows])
        self.sigma = np.where(wall, np.hypot(WALL_SIGMA, WALL_SIGMA_MS / self.measured), DEVICE_SIGMA)
        self.sources = sorted({row.case.family for row in rows if row.case.timer == "wall"})
        # Which source's dispatch constant each row carries.
        self.adds = np.zeros((len(rows), len(self.sources)))
        for number, row in enumerate(rows):
            if row.case.timer == "wall":
                self.adds[number, self.sources.index(row.case.family)] = 1
        self.heads = [replace(row, tape=row.tape.head(HEAD_EVENTS)) for row in rows]
        values = np.array([getattr(chips[p.chips[0]], p.name) for p in PARAMETERS], float)
        self.whole = np.ones(len(rows))
        """Per row, the time of its tape over that of its head."""
        self.whole = modelled_ms(rows, with_values(chips, values.tolist())) / self.ms(values)
        self.start = self.linearised(values)

    def ms(self, values: np.ndarray) -> np.ndarray:
        """Modelled milliseconds of every row."""
        return self.whole * modelled_ms(self.heads, with_values(self.chips, values.tolist()))

    def linearised(self, values: np.ndarray) -> _Linear:
        ms = self.ms(values)
        slopes = np.zeros((len(self.rows), len(PARAMETERS)))
        for i, parameter in enumerate(PARAMETERS):
            own = np.array([row.case.chip in parameter.chips for row in self.rows])
            heads = [row for row, changes in zip(self.heads, own, strict=True) if changes]
            more, less = (self._moved(heads, values, i, sign * parameter.step) for sign in (1, -1))
            slopes[own, i] = ms[own] * np.log(more / less) / (2 * parameter.step)
        return _Linear(values=values, ms=ms, slopes=slopes)

    def _moved(self, rows: Sequence[Timed], values: np.ndarray, index: int, step: float) -> np.ndarray:
        moved = values.copy()
        moved[index] += step
        return modelled_ms(rows, with_values(self.chips, moved.tolist()))

    def better(self, one: _Linear, other: Sequence[float], use: np.ndarray) -> _Linear:
        """``one``, or the model around the ``other`` values where these cost less on the rows of ``use``."""
        values = np.array(other)
        costs = self._cost(self.ms(values), values, use), self._cost(one.ms, one.values, use)
        return self.linearised(values) if costs[0] < costs[1] else one

    def solve(self, start: _Linear, use: np.ndarray, *, slack: float) -> _Linear:
        """The best values for the rows of ``use`` on the way from those of ``start``, these included.

        ``slack`` is by how much the first step may raise the cost.
        """
        linear, cost = start, self._cost(start.ms, start.values, use)
        before, bound = cost, cost + slack
        for _ in range(STEPS):
            aims = [self._aim(linear, use, radius) for radius in RADII]
            costs = [self._cost(self.ms(values), values, use) for values in aims]
            best = int(np.argmin(costs))
            if costs[best] > bound:
                break
            linear, cost = self.linearised(aims[best]), costs[best]
            bound = cost - LEAST_GAIN
        return linear if cost < before else start

    def _aim(self, linear: _Linear, use: np.ndarray, radius: float) -> np.ndarray:
        """Where the linear model is best, no farther than about ``radius``."""
        from scipy.optimize import least_squares  # type: ignore[import-untyped]

        count = len(PARAMETERS)

        def residuals(x: np.ndarray) -> np.ndarray:
            ms = linear.ms + linear.slopes @ (x[:count] - linear.values)
            damping = (x[:count] - linear.values) / (radius * self.width)
            return np.concatenate([self._residuals(ms, x[:count], x[count:], use), damping])

        start = np.concatenate([linear.values, np.full(len(self.sources), 0.2)])
        scale = np.concatenate([self.width, np.full(len(self.sources), 0.02)])
        # A soft loss: a wall clock has outliers that say nothing of the machine.
        values: np.ndarray = least_squares(residuals, start, x_scale=scale, loss="soft_l1").x[:count]
        return np.maximum(values, 1e-3)

    def _residuals(self, ms: np.ndarray, values: np.ndarray, dispatch: np.ndarray, use: np.ndarray) -> np.ndarray:
        shown = np.maximum(ms + self.adds @ dispatch, 1e-6)
        data = np.log(shown / self.measured) / self.sigma
        return np.concatenate([data[use], (values - self.prior) / self.width])

    def _cost(self, ms: np.ndarray, values: np.ndarray, use: np.ndarray) -> float:
        """With the dispatch constants that make it least."""
        from scipy.optimize import least_squares

        def residuals(x: np.ndarray) -> np.ndarray:
            return self._residuals(ms, values, x, use)

        none = np.zeros(len(self.sources))
        if not self.sources:
            return float((np.sqrt(1 + residuals(none) ** 2) - 1).sum())
        return float(least_squares(residuals, none + 0.2, x_scale=none + 0.02, loss="soft_l1").cost)

    def dispatch_ms(self, best: _Linear) -> dict[str, float]:
        """Per source with a wall clock, the constant that makes its absolute errors least."""
        found = {}
        for i, source in enumerate(self.sources):
            own = self.adds[:, i] > 0
            found[source] = errors.dispatch_ms(self.measured[own].tolist(), best.ms[own].tolist())
        return found

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
