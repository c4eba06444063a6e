"""Constants of one chip fitted to published timings of it; what was fitted on no timing follows from the v5e.

Few are free: the rest of the model of memory is that of the v5e, times equal in seconds. Everything is least squares on
log ratios around priors, linearised around the solution, and solved again without each sweep in turn. Timings by a wall
clock carry one constant per source, the dispatch, which is fitted beside the others and has no prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.lib.published import errors
from benchmarks.lib.published.fit import Timed
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

IN_SECONDS = (
    "read_issue_cycles", "read_latency_cycles", "write_issue_cycles", "turnaround_cycles", "write_piece_cycles",
    "local_latency_cycles",
)  # fmt: skip
"""Constants that are times: in cycles, they grow with the clock."""


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


def constants_with(name: str, values: Sequence[float], free: Sequence[Free] | None = None) -> tuple[float, Constants]:
    """Clock in Hz and constants of a chip with such values of ``free``, by default of what is fitted."""
    chip = CHIPS[name]
    known = dict(zip((one.name for one in free or FREE[name]), values, strict=True))
    clock = known.get("clock", chip.clock_hz / 1e9) * 1e9
    v5e, faster = CHIPS["v5e"], clock / CHIPS["v5e"].clock_hz
    wider = chip.hbm_bytes_per_s / v5e.hbm_bytes_per_s
    base = {field: getattr(v5e.constants, field) for field in vars(v5e.constants) if field not in ("source", "checked")}
    for field in base:
        if field in IN_SECONDS:
            base[field] *= faster / (wider if field == "write_piece_cycles" else 1)
        elif field.startswith(("turnaround_bytes", "write_rate_bytes")):
            base[field] *= wider
    base["read_latency_cycles"] += known.get("read latency beyond that of v5e", 0.0) * 1e-6 * clock
    for field in base:
        base[field] *= known.get(f"{field}{TIMES_V5E}", 1.0)
    base["hbm_efficiency"] = known["hbm_efficiency"]
    base["local_bytes_per_cycle"] = chip.constants.local_bytes_per_cycle * chip.clock_hz / clock
    return clock, replace(chip.constants, **base)


def modelled_ms(
    name: str, rows: Sequence[Timed], values: Sequence[float], free: Sequence[Free] | None = None
) -> np.ndarray:
    """Modelled milliseconds of every row with such values; a program that is there twice is replayed once."""
    clock, constants = constants_with(name, values, free)
    chip = replace(CHIPS[name], clock_hz=clock)
    done: dict[tuple[str, bool], float] = {}
    for row in rows:
        if row.program not in done:
            cycles = row.tape.cycles(chip, constants, copies_results=row.case.older)
            done[row.program] = cycles / clock * 1e3
    return np.array([done[row.program] for row in rows])


def fit(name: str, rows: Sequence[Timed], free: Sequence[Free] | None = None) -> Fitted:
    """Fits ``free`` values of chip ``name``, by default those of :data:`FREE`, to rows of it."""
    free = free or FREE[name]
    measured = np.array([row.measured_ms for row in rows])
    groups = [sweep(row) for row in rows]
    values = np.array([one.prior for one in free])
    every = np.ones(len(rows), bool)
    walls = _walls(rows)
    for _ in range(ROUNDS):
        base, slopes = _linearised(name, rows, values, free)
        origin, values = values, _solved(free, base, slopes, values, measured, walls=walls, use=every)
    names = sorted(set(groups))
    left_out = {
        group: _solved(
            free, base, slopes, origin, measured, walls=walls, use=np.array([one != group for one in groups])
        )
        for group in names
    }
    held_out = np.array(
        [
            base[i] + slopes[i] @ (left_out[group] - origin) if len(names) > 1 else base[i]
            for i, group in enumerate(groups)
        ]
    )
    dispatch = _dispatch_left_out(walls, measured, held_out)
    known = modelled_ms(name, rows, values.tolist(), free)
    table = np.array(list(left_out.values()))
    spread = np.sqrt((len(names) - 1) / len(names) * ((table - table.mean(0)) ** 2).sum(0))
    least = np.array([one.step for one in free])
    spread = np.where(values < 1.001 * least, np.maximum(spread, least), spread)  # that of a bound would be 0
    return Fitted(
        values=tuple(values.tolist()),
        spread=tuple(spread.tolist()),
        ms=tuple((known + _dispatch_left_out(walls, measured, known)).tolist()),
        held_out_ms=tuple((held_out + dispatch).tolist()),
        dispatch_ms=tuple(dispatch.tolist()),
    )


def _walls(rows: Sequence[Timed]) -> np.ndarray:
    """Which source's wall clock timed each row: float64[rows, sources], one 1 in a row or none."""
    sources = sorted({row.case.family for row in rows if row.case.timer == "wall"})
    return np.array(
        [[float(row.case.timer == "wall" and row.case.family == one) for one in sources] for row in rows]
    ).reshape(len(rows), len(sources))


def _dispatch_left_out(walls: np.ndarray, measured: np.ndarray, device: np.ndarray) -> np.ndarray:
    """Per row, ms that its clock adds, by the other rows of its source; 0 with a profiler."""
    added = np.zeros(len(measured))
    for own in walls.T.astype(bool):
        added[own] = errors.dispatch_left_out_ms(measured[own].tolist(), device[own].tolist())
    return added


def _linearised(
    name: str, rows: Sequence[Timed], values: np.ndarray, free: Sequence[Free]
) -> tuple[np.ndarray, np.ndarray]:
    base = modelled_ms(name, rows, values.tolist(), free)
    slopes = []
    for i, one in enumerate(free):
        moved = values.copy()
        moved[i] += one.step
        slopes.append((modelled_ms(name, rows, moved.tolist(), free) - base) / one.step)
    return base, np.array(slopes).T


def _solved(
    free: Sequence[Free],
    base: np.ndarray,
    slopes: np.ndarray,
    origin: np.ndarray,
    measured: np.ndarray,
    *,
    walls: np.ndarray,
    use: np.ndarray,
) -> np.ndarray:
    from scipy.optimize import least_squares  # type: ignore[import-untyped]

    prior, sigma = (np.array([getattr(one, what) for one in free]) for what in ("prior", "sigma"))

    count, clocks = len(free), walls.shape[1]

    def residuals(x: np.ndarray) -> np.ndarray:
        ms = np.maximum(base + slopes @ (x[:count] - origin) + walls @ x[count:], 1e-6)
        return np.concatenate([np.log(ms / measured)[use] / SIGMA, (x[:count] - prior) / sigma])

    least = np.array([one.step for one in free])
    start = np.append(np.maximum(origin, least * 1.01), np.full(clocks, DISPATCH_MS))
    found = least_squares(
        residuals,
        start,
        x_scale=np.append(sigma, np.full(clocks, DISPATCH_MS)),
        loss="soft_l1",
        bounds=(np.append(least, np.zeros(clocks)), np.inf),
    )
    solution: np.ndarray = found.x[:count]
    return solution
