"""Constants of one chip fitted to published timings of it; what was fitted on no timing follows from the v5e.

Few are free: the rest of the model of memory is that of the v5e, times equal in seconds. Everything is least squares on
log ratios around priors, linearised around the solution, and solved again without each sweep in turn. Timings by a wall
clock carry one constant per source, the dispatch, which is fitted beside the others and has no prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.lib.published import errors, timed
from benchmarks.lib.published.timed import Timed
from ratchet.tpu.chips import CHIPS
from ratchet.tpu.chips.fitted import Constants

SIGMA = 0.02
"""What a published timing is worth: the same program, timed twice, differs by up to 8 % from compiler to compiler."""

DISPATCH_MS = 0.1
"""What a wall clock may add to begin with."""

ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Free:
    """One value that is fitted."""

    name: str
    unit: str
    prior: float
    sigma: float
    step: float
    """For finite differences."""


def scale(field: str) -> Free:
    """A constant as a multiple of that of the v5e, where its time or its bytes would have followed from there."""
    return Free(name=f"{field}{TIMES_V5E}", unit="", prior=1.0, sigma=0.7, step=0.1)


TIMES_V5E = " over that of v5e"
EFFICIENCY = Free(name="hbm_efficiency", unit="", prior=0.9, sigma=0.04, step=0.01)
"""Share of the nominal bandwidth."""
LATENCY = Free(name="read latency beyond that of v5e", unit="us", prior=0.1, sigma=0.3, step=0.05)
FREE = {
    "v5p": (EFFICIENCY,),
    "v6e": (EFFICIENCY, LATENCY),
    "tpu7x": (
        EFFICIENCY,
        Free(name="clock", unit="GHz", prior=1.95, sigma=0.15, step=0.02),
        LATENCY,
        scale("turnaround_cycles"),
    ),
}
"""By chip. The clock of the others is that of their peak."""

ALTERNATIVES = (
    "turnaround_cycles", "turnaround_bytes", "read_issue_cycles", "read_spread", "write_spread", "write_rate",
    "write_rate_bytes", "write_issue_cycles",
)  # fmt: skip
"""Constants of which one could have been fitted, too."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What came of a fit."""

    values: tuple[float, ...]
    """In the order of :data:`FREE`."""
    spread: tuple[float, ...]
    """Jackknife standard error over the sweeps."""
    ms: tuple[float, ...]
    """Per row, with these values: what its own timer should show."""
    held_out_ms: tuple[float, ...]
    """Per row, with values that were fitted without the row's sweep."""
    dispatch_ms: tuple[float, ...]
    """Per row, what of ``held_out_ms`` its clock adds: the constant that fits the other rows of its source."""

    def cost(self, rows: Sequence[Timed]) -> float:
        """What the fit makes least, without the priors: a sum of squared log ratios in units of SIGMA, softened."""
        ratios = np.log(np.array(self.ms) / [row.measured_ms for row in rows]) / SIGMA
        return float(2 * (np.sqrt(1 + ratios**2) - 1).sum())


def sweep(row: Timed) -> str:
    """What is left out together: one kernel at one shape of its operands."""
    return f"{row.case.kernel} {' '.join(map(str, row.case.arrays))}"


def followed(field: str, *, faster: float, wider: float) -> float:
    """What a constant of a chip, if nothing was fitted, is over that of the v5e: shares are the same.

    Times are equal in seconds. Bytes grow with the bandwidth, because a faster memory has more channels and so more
    room for what waits; a narrow piece takes one channel, so its time shrinks by as much.
    """
    if field == "write_piece_cycles":
        return faster / wider
    if field.endswith("_bytes"):
        return wider
    return faster if field.endswith("_cycles") else 1.0


def constants_with(name: str, values: Sequence[float], free: Sequence[Free] | None = None) -> tuple[float, Constants]:
    """Clock in Hz and constants of a chip with such values of ``free``, by default of what is fitted."""
    chip = CHIPS[name]
    known = dict(zip((one.name for one in free or FREE[name]), values, strict=True))
    clock = known.get("clock", chip.clock_hz / 1e9) * 1e9
    v5e, faster = CHIPS["v5e"], clock / CHIPS["v5e"].clock_hz
    wider = chip.hbm_bytes_per_s / v5e.hbm_bytes_per_s
    base = {field: value for field, value in vars(v5e.constants).items() if field not in ("source", "checked")}
    base = {field: value * followed(field, faster=faster, wider=wider) for field, value in base.items()}
    base["read_latency_cycles"] += known.get("read latency beyond that of v5e", 0.0) * 1e-6 * clock
    for field in base:
        base[field] *= known.get(f"{field}{TIMES_V5E}", 1.0)
    base["hbm_efficiency"] = known["hbm_efficiency"]
    base["local_bytes_per_cycle"] = chip.constants.local_bytes_per_cycle * chip.clock_hz / clock
    return clock, replace(chip.constants, **base)


def modelled_ms(
    name: str, rows: Sequence[Timed], values: Sequence[float], free: Sequence[Free] | None = None
) -> np.ndarray:
    """Modelled milliseconds of every row with such values."""
    clock, constants = constants_with(name, values, free)
    return timed.modelled_ms(rows, {name: constants}, clock)


def fit(name: str, rows: Sequence[Timed], free: Sequence[Free] | None = None) -> Fitted:
    """Fits ``free`` values of chip ``name``, by default those of :data:`FREE`, to rows of it."""
    from scipy.optimize import least_squares  # type: ignore[import-untyped]

    free = free or FREE[name]
    prior, sigma, least = (np.array([getattr(one, what) for one in free]) for what in ("prior", "sigma", "step"))
    measured, groups = np.array([row.measured_ms for row in rows]), [sweep(row) for row in rows]
    walls = timed.walls(rows)[1]
    count, dispatch_ms = len(free), np.full(walls.shape[1], DISPATCH_MS)

    def modelled(values: np.ndarray) -> np.ndarray:
        return modelled_ms(name, rows, values.tolist(), free)

    def solved(base: np.ndarray, slopes: np.ndarray, origin: np.ndarray, use: np.ndarray) -> np.ndarray:
        """The best values for the rows of ``use``, by the model around ``origin``."""

        def residuals(x: np.ndarray) -> np.ndarray:
            ms = np.maximum(base + slopes @ (x[:count] - origin) + walls @ x[count:], 1e-6)
            return np.concatenate([np.log(ms / measured)[use] / SIGMA, (x[:count] - prior) / sigma])

        start = np.append(np.maximum(origin, least * 1.01), dispatch_ms)
        bounds = np.append(least, np.zeros(len(dispatch_ms))), np.inf
        found = least_squares(residuals, start, x_scale=np.append(sigma, dispatch_ms), loss="soft_l1", bounds=bounds)
        return found.x[:count]  # type: ignore[no-any-return]

    values = prior
    for _ in range(ROUNDS):
        base = modelled(values)
        moved = [modelled(values + step) for step in np.diag(least)]
        slopes = np.array([(ms - base) / one.step for ms, one in zip(moved, free, strict=True)]).T
        origin, values = values, solved(base, slopes, values, np.ones(len(rows), bool))
    left_out = {
        group: solved(base, slopes, origin, np.array([one != group for one in groups])) for group in sorted(set(groups))
    }
    held_out = base.copy()
    if len(left_out) > 1:
        held_out += [slopes[i] @ (left_out[group] - origin) for i, group in enumerate(groups)]
    dispatch, known = _dispatch_left_out(walls, measured, held_out), modelled(values)
    spread = errors.jackknife(list(left_out.values()))
    spread = np.where(values < 1.001 * least, np.maximum(spread, least), spread)  # that of a bound would be 0
    return Fitted(
        values=tuple(values.tolist()),
        spread=tuple(spread.tolist()),
        ms=tuple((known + _dispatch_left_out(walls, measured, known)).tolist()),
        held_out_ms=tuple((held_out + dispatch).tolist()),
        dispatch_ms=tuple(dispatch.tolist()),
    )


def _dispatch_left_out(walls: np.ndarray, measured: np.ndarray, device: np.ndarray) -> np.ndarray:
    """Per row, ms that its clock adds, by the other rows of its source; 0 with a profiler."""
    added = np.zeros(len(measured))
    for own in walls.T.astype(bool):
        added[own] = errors.dispatch_left_out_ms(measured[own].tolist(), device[own].tolist())
    return added
