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

HEAD_EVENTS = 20_000
"""How a constant changes the time of a longer tape is judged by its beginning: such programs repeat themselves."""

DEVICE_SIGMA, WALL_SIGMA, WALL_SIGMA_MS = 0.01, 0.03, 0.01
"""What a profiler's device time and a wall clock are believed to be worth: relative, and a jitter in ms besides."""

ROUNDS = 2


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One constant that is fitted."""

    chips: tuple[str, ...]
    """Chips that share it."""
    name: str
    prior: float
    prior_sigma: float
    step: float
    """For finite differences, to both sides."""

    @property
    def label(self) -> str:
        return f"{self.name} ({', '.join(self.chips)})"


def _v5e(name: str, prior: float, sigma: float) -> Parameter:
    return Parameter(chips=("v5e",), name=name, prior=prior, prior_sigma=sigma, step=sigma / 10)


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
    """Of the program: cases that share it are replayed once."""

    @property
    def measured_ms(self) -> float:
        assert self.case.measured_ms is not None
        return self.case.measured_ms

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
    known: dict[str, float] = {}
    for row in rows:
        if row.identity not in known:
            chip = CHIPS[row.case.chip]
            known[row.identity] = row.tape.cycles(chip, chips[chip.name]) / chip.clock_hz * 1e3
    return np.array([known[row.identity] for row in rows])


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


def fit(rows: Sequence[Timed], chips: Chips, say: Callable[[str], None]) -> Fit:
    """Fits all parameters, and again without each group.

    The machine is linearised around the present values, the stored ones at first; a round replays every tape once per
    parameter.
    """
    problem = _Problem(rows, chips)
    values = np.array([getattr(chips[p.chips[0]], p.name) for p in PARAMETERS], float)
    problem.linearise(values)
    for number in range(ROUNDS):
        values, dispatch, better = problem.improved()
        say(f"round {number + 1}: " + ", ".join(f"{v:.5g}" for v in values))
        if not better:
            break
        problem.linearise(values)
    groups, kinds = sorted({row.group for row in rows}), sorted({row.kind for row in rows})
    left_out = {g: problem.solve(np.array([row.group != g for row in rows]))[0] for g in groups}
    without_kind = {k: problem.solve(np.array([row.kind != k for row in rows]))[0] for k in kinds}
    table = np.array(list(left_out.values()))
    count = len(groups)
    spread = np.sqrt((count - 1) / count * ((table - table.mean(0)) ** 2).sum(0))
    return Fit(
        values=tuple(values.tolist()),
        left_out={g: tuple(v.tolist()) for g, v in left_out.items()},
        without_kind={k: tuple(v.tolist()) for k, v in without_kind.items()},
        pinned=tuple(problem.pinned()),
        spread=tuple(spread.tolist()),
        dispatch_ms=dispatch,
    )


class _Problem:
    def __init__(self, rows: Sequence[Timed], chips: Chips) -> None:
        self.rows = rows
        self.chips = chips
        self.heads = [replace(row, tape=row.tape.head(HEAD_EVENTS)) for row in rows]
        self.measured = np.array([row.measured_ms for row in rows])
        wall = np.array([row.case.timer == "wall" for row in rows])
        self.sigma = np.where(wall, np.hypot(WALL_SIGMA, WALL_SIGMA_MS / self.measured), DEVICE_SIGMA)
        self.sources = sorted({row.case.family for row in rows if row.case.timer == "wall"})
        # Which source's dispatch constant each row carries.
        self.adds = np.zeros((len(rows), len(self.sources)))
        for number, row in enumerate(rows):
            if row.case.timer == "wall":
                self.adds[number, self.sources.index(row.case.family)] = 1

    def linearise(self, values: np.ndarray) -> None:
        self.origin = values
        self.base = modelled_ms(self.rows, with_values(self.chips, values.tolist()))
        self.slopes = np.zeros((len(self.rows), len(PARAMETERS)))
        for i, parameter in enumerate(PARAMETERS):
            own = np.array([row.case.chip in parameter.chips for row in self.rows])
            heads = [row for row, changes in zip(self.heads, own, strict=True) if changes]
            more, less = (self._moved(heads, i, sign * parameter.step) for sign in (1, -1))
            self.slopes[own, i] = self.base[own] * np.log(more / less) / (2 * parameter.step)

    def _moved(self, rows: Sequence[Timed], index: int, step: float) -> np.ndarray:
        moved = self.origin.copy()
        moved[index] += step
        return modelled_ms(rows, with_values(self.chips, moved.tolist()))

    def improved(self) -> tuple[np.ndarray, dict[str, float], bool]:
        """Better values by the linear model, with the dispatch constants; the present ones where none are better."""
        everything = np.ones(len(self.rows), bool)
        aim, dispatch = self.solve(everything)
        before = self._cost(self.base, self.origin, self._best_dispatch(self.base))
        for share in (1.0, 0.5, 0.25):
            values = self.origin + share * (aim - self.origin)
            ms = modelled_ms(self.rows, with_values(self.chips, values.tolist()))
            if self._cost(ms, values, self._best_dispatch(ms)) < before:
                return values, dict(zip(self.sources, self._best_dispatch(ms).tolist(), strict=True)), True
        return self.origin, dispatch, False

    def _best_dispatch(self, ms: np.ndarray) -> np.ndarray:
        best = np.zeros(len(self.sources))
        for i in range(len(self.sources)):
            own = self.adds[:, i] > 0
            best[i] = errors.dispatch_ms(self.measured[own].tolist(), ms[own].tolist())
        return best

    def _cost(self, ms: np.ndarray, values: np.ndarray, dispatch: np.ndarray) -> float:
        prior = np.array([(v - p.prior) / p.prior_sigma for v, p in zip(values, PARAMETERS, strict=True)])
        data = np.log((ms + self.adds @ dispatch) / self.measured) / self.sigma
        return float(2 * (np.sqrt(1 + np.concatenate([data, prior]) ** 2) - 1).sum())

    def pinned(self) -> list[str]:
        """Per parameter, the kind with the largest share of the Fisher information."""
        information = (self.slopes / (self.base * self.sigma)[:, None]) ** 2
        kinds = sorted({row.kind for row in self.rows})
        shares = np.array([information[[row.kind == kind for row in self.rows]].sum(0) for kind in kinds])
        words = []
        for i in range(len(PARAMETERS)):
            most = int(shares[:, i].argmax())
            whole = shares[:, i].sum()
            words.append(f"{kinds[most]} {shares[most, i] / whole:.0%}" if whole else "nothing")
        return words

    def solve(self, use: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        from scipy.optimize import least_squares  # type: ignore[import-untyped]

        prior = np.array([parameter.prior for parameter in PARAMETERS])
        sigma = np.array([parameter.prior_sigma for parameter in PARAMETERS])
        count = len(prior)

        def residuals(x: np.ndarray) -> np.ndarray:
            ms = self.base + self.slopes @ (x[:count] - self.origin) + self.adds @ x[count:]
            data = np.log(np.maximum(ms, 1e-6) / self.measured) / self.sigma
            return np.concatenate([data[use], (x[:count] - prior) / sigma])

        start = np.concatenate([self.origin, np.full(len(self.sources), 0.2)])
        scale = np.concatenate([sigma, np.full(len(self.sources), 0.02)])
        # A soft loss: a wall clock has outliers that say nothing of the machine.
        solution = least_squares(residuals, start, x_scale=scale, loss="soft_l1").x
        return solution[:count], dict(zip(self.sources, solution[count:].tolist(), strict=True))
