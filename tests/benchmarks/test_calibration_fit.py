"""Fitting the constants of the v5e, on made-up tapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.lib.published.cases import Case
from benchmarks.lib.published.fit import PARAMETERS, Fit, Timed, fit, modelled_ms, with_values
from benchmarks.lib.published.tape import START, WAIT, Tape
from ratchet.chips import CHIPS, V5E

HBM_TO_VMEM, VMEM_TO_HBM = 1, 4
STORED = {V5E.name: CHIPS[V5E.name].constants}
EFFICIENCY, READ_LATENCY = 0, 2
"""Positions in ``PARAMETERS``."""


def timed(number: int, kernel: str, tape: Tape) -> Timed:
    case = Case(
        number=str(number), source="made up", kernel=kernel, chip=V5E.name, arrays=(), config={}, status="ok",
        measured_ms=1.0, timer="device", doubtful=False,
    )  # fmt: skip
    return Timed(case=case, tape=tape, identity=str(number))


def waited_for(copies: int, granules: int, compute: int) -> Tape:
    """Reads that are waited for one by one, each followed by a write that is not, with cycles between them."""
    events = []
    for flag in range(1, 2 * copies, 2):
        events += [(START, compute, HBM_TO_VMEM, granules, flag, 0), (WAIT, 0, granules, 0, flag, 0)]
        events += [(START, 0, VMEM_TO_HBM, granules, flag + 1, 0)]
    return Tape(events=np.array(events, np.int64), tail_cycles=0, facts={})


SHAPES = {"large": [(20, 100_000, 10), (40, 50_000, 10)], "small": [(200, 100, 400), (100, 200, 900), (300, 50, 30)]}


@pytest.fixture(scope="module")
def rows() -> list[Timed]:
    """Timed as with less of the bandwidth and more latency than the stored constants say."""
    values = [getattr(V5E.constants, parameter.name) for parameter in PARAMETERS]
    values[EFFICIENCY], values[READ_LATENCY] = 0.89, 420.0
    kernels = [(kernel, shape) for kernel, shapes in SHAPES.items() for shape in shapes]
    made = [timed(number, kernel, waited_for(*shape)) for number, (kernel, shape) in enumerate(kernels)]
    return [
        replace(row, case=replace(row.case, measured_ms=float(ms)))
        for row, ms in zip(made, modelled_ms(made, with_values(STORED, values)), strict=True)
    ]


@pytest.fixture(scope="module")
def fitted(rows: list[Timed]) -> Fit:
    return fit(rows, STORED, lambda _text: None, known={})


def worst(rows: list[Timed], values: Sequence[float]) -> float:
    """The largest relative error with such values."""
    return max(abs(modelled_ms(rows, with_values(STORED, values)) / [row.measured_ms for row in rows] - 1))


def test_timings_are_explained_that_the_stored_constants_do_not_explain(rows: list[Timed], fitted: Fit) -> None:
    stored = [getattr(V5E.constants, parameter.name) for parameter in PARAMETERS]
    assert worst(rows, stored) > 0.05
    assert worst(rows, fitted.values) < 0.01


def test_rows_that_a_fit_left_out_are_explained_worse_and_the_others_as_well(rows: list[Timed], fitted: Fit) -> None:
    for kernel in SHAPES:
        group = f"made up: {kernel}, {V5E.name}"
        own, others = [r for r in rows if r.group == group], [r for r in rows if r.group != group]
        values = fitted.left_out[group]
        assert worst(others, values) < 0.01
        assert worst(own, values) > worst(own, fitted.values)
    assert fitted.spread[EFFICIENCY] > 0


def test_a_fit_that_leaves_rows_out_starts_from_the_better_of_two(rows: list[Timed], fitted: Fit) -> None:
    """From where an earlier one ended it does not leave again; from worse values it starts as if there were none."""
    start = with_values(STORED, fitted.values)
    group = next(iter(fitted.left_out))
    far = tuple(3 * value for value in fitted.left_out[group])
    known, worse = (fit(rows, start, lambda _text: None, known={group: at}) for at in (fitted.left_out[group], far))
    others = [row for row in rows if row.group != group]
    for again in (known, worse):
        assert worst(others, again.left_out[group]) < 0.01
