"""Fits the machine's constants to published timings: least squares on log ratios, around prior values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.lib.published.cases import Case
from benchmarks.lib.published.tape import Tape
from ratchet.chips import CHIPS
from ratchet.chips.constants import Constants

Chips = Mapping[str, Constants]
"""Constants by name of the chip."""

MOST_EVENTS = 60_000
"""Longer tapes are predicted, but not fitted on: they would take most of the time and repeat what shorter ones say."""

DEVICE_SIGMA, WALL_SIGMA, WALL_SIGMA_MS = 0.01, 0.03, 0.01
"""What a profiler's device time and a wall clock are believed to be worth: relative, and a jitter in ms besides."""

ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One constant that is fitted."""

    chips: tuple[str, ...]
    """Chips that share it."""
    name: str
    prior: float
    prior_sigma: float
    step: float
    """For finite differences."""

    @property
    def label(self) -> str:
        return f"{self.name} ({', '.join(self.chips)})"


def _v5e(name: str, prior: float, sigma: float) -> Parameter:
    return Parameter(chips=("v5e",), name=name, prior=prior, prior_sigma=sigma, step=sigma / 5)


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
    _v5e("read_spread", 1.77, 0.5),
    _v5e("write_spread", 1.77, 1.5),
    _v5e("write_rate", 0.5, 0.2),
    _v5e("write_rate_bytes", 300e3, 150e3),
    _v5e("write_piece_cycles", 0.5, 0.5),
    Parameter(chips=("v5p",), name="hbm_efficiency", prior=0.92, prior_sigma=0.03, step=0.01),
    Parameter(chips=("v5p",), name="read_latency_cycles", prior=375, prior_sigma=75, step=30),
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
    spread: tuple[float, ...]
    """Jackknife standard error over the groups."""
    dispatch_ms: Mapping[str, float]
    """Per source with a wall clock."""


def fit(rows: Sequence[Timed], chips: Chips, say: Callable[[str], None]) -> Fit:
    """Fits all parameters, and again without each group.

    The machine is linearised around the values found so far; a round replays every tape once per parameter.
    """
    values = np.array([getattr(chips[p.chips[0]], p.name) for p in PARAMETERS], float)
    short = [row for row in rows if len(row.tape.events) <= MOST_EVENTS]
    problem = _Problem(short)
    for number in range(ROUNDS):
        problem.linearise(chips, values)
        values, dispatch = problem.solve(np.ones(len(short), bool))
        say(f"round {number + 1}: " + ", ".join(f"{v:.5g}" for v in values))
    groups = sorted({row.group for row in rows})
    left_out = {g: problem.solve(np.array([row.group != g for row in short]))[0] for g in groups}
    table = np.array(list(left_out.values()))
    count = len(groups)
    spread = np.sqrt((count - 1) / count * ((table - table.mean(0)) ** 2).sum(0))
    return Fit(
        values=tuple(values.tolist()),
        left_out={g: tuple(v.tolist()) for g, v in left_out.items()},
        spread=tuple(spread.tolist()),
        dispatch_ms=dispatch,
    )


class _Problem:
    def __init__(self, rows: Sequence[Timed]) -> None:
        self.rows = rows
        self.measured = np.array([row.measured_ms for row in rows])
        wall = np.array([row.case.timer == "wall" for row in rows])
        self.sigma = np.where(wall, np.hypot(WALL_SIGMA, WALL_SIGMA_MS / self.measured), DEVICE_SIGMA)
        self.sources = sorted({row.case.family for row in rows if row.case.timer == "wall"})
        # Which source's dispatch constant each row carries.
        self.adds = np.zeros((len(rows), len(self.sources)))
        for number, row in enumerate(rows):
            if row.case.timer == "wall":
                self.adds[number, self.sources.index(row.case.family)] = 1

    def linearise(self, chips: Chips, values: np.ndarray) -> None:
        self.origin = values
        self.base = modelled_ms(self.rows, with_values(chips, values.tolist()))
        slopes = []
        for i, parameter in enumerate(PARAMETERS):
            moved = values.copy()
            moved[i] += parameter.step
            slopes.append((modelled_ms(self.rows, with_values(chips, moved.tolist())) - self.base) / parameter.step)
        self.slopes = np.array(slopes).T

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
