"""Published timings with the tapes of their programs, and the constants of the machine that are fitted to them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from benchmarks.lib.published.cases import Case, kind_of
from benchmarks.lib.published.tape import Tape
from ratchet.tpu.chips import CHIPS, V5E, fitted
from ratchet.tpu.chips.fitted import Constants

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Chips = Mapping[str, Constants]
"""Constants by name of the chip."""
Fits = Mapping[str, tuple[float, ...]]
"""Per group or kind of rows, the values of ``PARAMETERS`` fitted without it."""

MOST_EVENTS = 60_000
"""Longer tapes take most of the time and repeat what shorter ones say: for fits that replay every tape many times."""


@dataclass(frozen=True)
class Parameter:
    """One constant of the v5e that is fitted."""

    name: str
    prior: float
    prior_sigma: float

    @property
    def step(self) -> float:
        """For finite differences, to both sides: cycles are whole numbers, so a small one would measure rounding."""
        return self.prior_sigma / 4

    @property
    def label(self) -> str:
        return f"{self.name} ({V5E.name})"


# Priors are wide, and known without the timings: 1.77 standard deviations is what the largest of 16 normal values is
# expected at, HBM's turnaround and the latency of a read are of the order of 50 and 300 ns, and half of a direction's
# bandwidth for a single write is a guess. What the timings do not pin down stays there, with a wide spread.
PARAMETERS = (
    Parameter("hbm_efficiency", 0.92, 0.03),
    Parameter("read_issue_cycles", 250, 100),
    Parameter("read_latency_cycles", 250, 100),
    Parameter("write_issue_cycles", 100, 100),
    Parameter("turnaround_cycles", 75, 40),
    Parameter("turnaround_bytes", 400e3, 200e3),
    Parameter("turnaround_width", 0.0, 0.1),
    Parameter("read_spread", 1.77, 0.5),
    Parameter("write_spread", 1.77, 1.5),
    Parameter("write_rate", 0.5, 0.2),
    Parameter("write_rate_bytes", 300e3, 150e3),
    Parameter("write_piece_cycles", 0.5, 0.5),
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
    def clock(self) -> tuple[str, str, str]:
        """Source, chip and timer: rows of a wall clock share one constant."""
        return self.case.family, self.case.chip, self.case.timer

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


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Items by their key, in the order in which they come."""
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def positions(keys: Sequence[Key]) -> dict[Key, list[int]]:
    """Where each key occurs."""
    return grouped(range(len(keys)), keys.__getitem__)


def modelled_ms(rows: Sequence[Timed], chips: Chips, clock_hz: float | None = None) -> np.ndarray:
    """Modelled device milliseconds of every row; ``clock_hz`` is another clock than that of the row's chip."""
    known: dict[tuple[str, bool], float] = {}
    for row in rows:
        if row.program not in known:
            chip = CHIPS[row.case.chip]
            chip = replace(chip, clock_hz=clock_hz or chip.clock_hz)
            cycles = row.tape.cycles(chip, chips[chip.name], copies_results=row.case.older)
            known[row.program] = cycles / chip.clock_hz * 1e3
    return np.array([known[row.program] for row in rows])


def stored_fits(name: str) -> Fits:
    """Of ``left_out`` or ``without_kind``, as the constants that are kept came with them."""
    fits = fitted.stored().get(name, {})
    return {group: tuple(own[parameter.label] for parameter in PARAMETERS) for group, own in fits.items()}


def with_values(chips: Chips, values: Sequence[float]) -> Chips:
    """``chips`` with the fitted parameters of the v5e set to ``values``."""
    update = {one.name: float(value) for one, value in zip(PARAMETERS, values, strict=True)}
    return {**chips, V5E.name: replace(chips[V5E.name], **update)}  # type: ignore[arg-type]


def entry(value: float, spread: float | None = None) -> dict[str, float | None]:
    """A constant as ``fitted.json`` has it; without a spread it was fitted on no timing of its chip."""
    return {"value": float(f"{value:.5g}"), "spread": None if spread is None else float(f"{spread:.2g}")}


def walls(rows: Sequence[Timed]) -> tuple[list[str], np.ndarray]:
    """Sources with a wall clock, and which of them timed each row: float64[rows, sources], one 1 in a row or none."""
    sources = sorted({row.case.family for row in rows if row.case.timer == "wall"})
    timed = [[float(row.case.timer == "wall" and row.case.family == one) for one in sources] for row in rows]
    return sources, np.array(timed).reshape(len(rows), len(sources))
