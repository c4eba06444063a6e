"""Fitting the constants of the v5e, on made-up tapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.lib.published import batch
from benchmarks.lib.published.cases import Case
from benchmarks.lib.published.fit import PARAMETERS, TIED, Fit, Timed, central, fit, modelled_ms, with_values
from benchmarks.lib.published.tape import ADD, SET, START, VALUE, WAIT, Tape
from ratchet.tpu.chips import CHIPS, V5E

HBM_TO_VMEM, VMEM_TO_HBM, VMEM_TO_VMEM = 1, 4, 5
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
    return fit(rows, STORED, lambda _text: None, starts=2)


def worst(rows: list[Timed], values: Sequence[float]) -> float:
    """The largest relative error with such values."""
    return max(abs(modelled_ms(rows, with_values(STORED, values)) / [row.measured_ms for row in rows] - 1))


@pytest.mark.slow
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


def test_where_a_fit_ends_does_not_depend_on_the_stored_constants(rows: list[Timed], fitted: Fit) -> None:
    moved = with_values(STORED, [1.5 * getattr(V5E.constants, parameter.name) for parameter in PARAMETERS])
    assert fit(rows, moved, lambda _text: None, starts=2).values == pytest.approx(fitted.values)


def test_of_fits_as_good_as_the_best_the_middle_one_is_taken() -> None:
    points = np.array([[0.0, 0.0], [1.0, 0.2], [2.0, 0.0], [1.0, 0.0]])
    assert central(points, [5.0, 5.2, 5.3, 5.0 + 2 * TIED]) == 1
    assert central(points, [5.0 + 2 * TIED, 9.0, 5.0, 9.0]) == 2


EVENTS = [
    # Two reads on one flag, of which either may be first; a write; a flag that is set while a copy is under way.
    (START, 10, HBM_TO_VMEM, 60_000, 1, 4), (START, 5, HBM_TO_VMEM, 40, 1, 0), (WAIT, 3, 40, 0, 1, 0),
    (START, 7, VMEM_TO_HBM, 900, 2, 32), (WAIT, 0, 60_040, 0, 1, 0), (ADD, 0, -60_040, 0, 1, 0),
    (START, 0, HBM_TO_VMEM, 300, 3, 0), (SET, 800, 5, 0, 3, 0), (WAIT, 0, 5, 0, 3, 0), (WAIT, 9, 900, 0, 2, 0),
    (START, 0, VMEM_TO_VMEM, 64, 4, 0), (VALUE, 1, 0, 0, 4, 0), (WAIT, 1, 64, 0, 4, 0), (WAIT, 20, 64, 0, 4, 0),
]  # fmt: skip


def test_many_sets_of_constants_are_replayed_as_one_by_one() -> None:
    tape = Tape(events=np.array(EVENTS, np.int64), tail_cycles=11, facts={})
    draws = np.random.default_rng(1).uniform(0.2, 3.0, (40, len(PARAMETERS)))
    values = draws * [getattr(V5E.constants, parameter.name) for parameter in PARAMETERS]
    together = batch.cycles(
        tape, V5E, V5E.constants, {parameter.name: values[:, i] for i, parameter in enumerate(PARAMETERS)}
    )
    alone = [tape.cycles(V5E, with_values(STORED, one)[V5E.name]) for one in values.tolist()]
    assert together.tolist() == alone
    assert len(set(alone)) > 30
