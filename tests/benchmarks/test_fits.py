"""Fitting the constants of the v5e, and those of the other chips, on made-up tapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.calibrate import batch
from benchmarks.calibrate.fit import TIED, Fit, central, fit
from benchmarks.lib.published import chip_fit
from benchmarks.lib.published.cases import ATTENTION_KERNEL, Array
from benchmarks.lib.published.tape import ADD, OFFLOAD, SET, START, VALUE, WAIT
from benchmarks.lib.published.timed import PARAMETERS, Timed, modelled_ms, with_values
from ratchet.tpu.chips import CHIPS, V5E
from tests.benchmarks.made_up import HBM_TO_VMEM, VMEM_TO_HBM, VMEM_TO_VMEM, case, copies, measured, tape, timed

STORED = {V5E.name: CHIPS[V5E.name].constants}
VALUES = [getattr(V5E.constants, parameter.name) for parameter in PARAMETERS]
EFFICIENCY, READ_LATENCY = 0, 2
"""Positions in ``PARAMETERS``."""
SHAPES = {"large": [(20, 100_000, 10), (40, 50_000, 10)], "small": [(200, 100, 400), (100, 200, 900), (300, 50, 30)]}


@pytest.fixture(scope="module")
def rows() -> list[Timed]:
    """Timed as with less of the bandwidth and more latency than the stored constants say."""
    values = VALUES.copy()
    values[EFFICIENCY], values[READ_LATENCY] = 0.89, 420.0
    kernels = [(kernel, shape) for kernel, shapes in SHAPES.items() for shape in shapes]
    made = [
        timed(case(number, kernel=kernel), copies(*shape, writes=True))
        for number, (kernel, shape) in enumerate(kernels)
    ]
    return measured(made, modelled_ms(made, with_values(STORED, values)))


@pytest.fixture(scope="module")
def fitted(rows: list[Timed]) -> Fit:
    return fit(rows, STORED, lambda _text: None, starts=2)


def worst(rows: list[Timed], values: Sequence[float]) -> float:
    """The largest relative error with such values."""
    return max(abs(modelled_ms(rows, with_values(STORED, values)) / [row.measured_ms for row in rows] - 1))


def test_rows_that_a_fit_left_out_are_explained_worse_and_the_others_as_well(rows: list[Timed], fitted: Fit) -> None:
    assert worst(rows, VALUES) > 0.05, "the stored constants do not explain them"
    assert worst(rows, fitted.values) < 0.01
    for kernel in SHAPES:
        group = f"made up: {kernel}, {V5E.name}"
        own, others = [r for r in rows if r.group == group], [r for r in rows if r.group != group]
        values = fitted.left_out[group]
        assert worst(others, values) < 0.01
        assert worst(own, values) > worst(own, fitted.values)
    assert fitted.spread[EFFICIENCY] > 0


def test_where_a_fit_ends_does_not_depend_on_the_stored_constants(rows: list[Timed], fitted: Fit) -> None:
    moved = with_values(STORED, [1.5 * value for value in VALUES])
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
    run = tape(EVENTS, tail_cycles=11)
    values = np.random.default_rng(1).uniform(0.2, 3.0, (40, len(PARAMETERS))) * VALUES
    sets = {parameter.name: values[:, i] for i, parameter in enumerate(PARAMETERS)}
    alone = [run.cycles(V5E, with_values(STORED, one)[V5E.name]) for one in values.tolist()]
    assert batch.cycles(run, V5E, V5E.constants, sets).tolist() == alone
    assert len(set(alone)) > 30


# --- other chips ---


def rows_at(chip: str, values: list[float], free: list[chip_fit.Free] | None = None) -> list[Timed]:
    """Rows that were timed just as these values say."""
    shapes = [
        (20, 400_000, 100), (10, 1_000_000, 100), (40, 200_000, 100), (60, 2000, 8000), (10, 1000, 50_000),
        (200, 500, 200), (400, 100, 100),
    ]  # fmt: skip
    made = [
        timed(case(n, chip=chip, arrays=(Array(dtype="bf16", shape=(n, 128)),)), copies(*shape))
        for n, shape in enumerate(shapes)
    ]
    return measured(made, chip_fit.modelled_ms(chip, made, values, free))


def test_a_share_of_the_bandwidth_is_found_again_and_held_out() -> None:
    rows = rows_at("v6e", [0.82, 0.2])
    fitted, times = chip_fit.fit("v6e", rows), [row.measured_ms for row in rows]
    assert fitted.values[0] == pytest.approx(0.82, abs=0.01)
    assert fitted.ms == pytest.approx(times, rel=0.01)
    assert fitted.held_out_ms != fitted.ms
    assert fitted.held_out_ms == pytest.approx(times, rel=0.02)
    fitted = chip_fit.fit("tpu7x", rows_at("tpu7x", [0.9, 1.8, 0.5, 1.0]))
    assert fitted.values[1:3] == pytest.approx((1.8, 0.5), rel=0.03), "clock and latency are fitted each for itself"


def test_a_wall_clock_adds_a_constant_that_is_fitted_beside_the_values() -> None:
    rows = rows_at("v6e", [0.82, 0.2])
    by_wall = measured(rows[3:], [row.measured_ms + 0.2 for row in rows[3:]], timer="wall", source="b@1")
    fitted = chip_fit.fit("v6e", [*rows[:3], *by_wall])
    assert fitted.values == pytest.approx((0.82, 0.2), abs=0.02)
    assert fitted.dispatch_ms[:3] == (0, 0, 0)
    assert fitted.dispatch_ms[3:] == pytest.approx([0.2] * len(by_wall), abs=0.01)
    assert fitted.ms == pytest.approx([row.measured_ms for row in (*rows[:3], *by_wall)], rel=0.02)


def test_what_is_not_fitted_follows_from_the_v5e() -> None:
    clock, constants = chip_fit.constants_with("v6e", [0.82, 0.2])
    assert clock == CHIPS["v6e"].clock_hz
    assert constants.hbm_efficiency == 0.82
    latency = V5E.constants.read_latency_cycles / V5E.clock_hz + 0.2e-6
    assert constants.read_latency_cycles / clock == pytest.approx(latency)
    wider = CHIPS["v6e"].hbm_bytes_per_s / V5E.hbm_bytes_per_s
    assert constants.turnaround_bytes == pytest.approx(V5E.constants.turnaround_bytes * wider)
    (_, shorter), (clock, equal) = (chip_fit.constants_with("tpu7x", [0.9, 1.8, 0.5, share]) for share in (0.25, 1.0))
    assert shorter.turnaround_cycles == pytest.approx(equal.turnaround_cycles / 4)
    assert shorter.turnaround_bytes == equal.turnaround_bytes
    assert equal.turnaround_cycles / clock == pytest.approx(V5E.constants.turnaround_cycles / V5E.clock_hz)


def test_in_older_timings_the_tensor_core_copies_the_result() -> None:
    new = case(1, chip="tpu7x", kernel=ATTENTION_KERNEL, source="tokamax (2026-07-16 abc)")
    old = replace(new, source="tokamax (2026-02-28 abc)")
    assert (old.older, new.older, replace(old, chip="v6e").older) == (True, False, False)
    moved = 1 << 27
    copied = tape([(OFFLOAD, 9, core, moved, 5 + core, 0) for core in (0, 1)], tail_cycles=100)
    slower, faster = chip_fit.modelled_ms("tpu7x", [timed(one, copied) for one in (old, new)], [0.9, 1.8, 0.5, 1.0])
    assert slower - faster == pytest.approx(moved / (0.9 * CHIPS["tpu7x"].hbm_bytes_per_s) * 1e3, rel=1e-3)


def test_a_result_that_a_sparse_core_copies_takes_no_time_of_the_tensor_core() -> None:
    chip = CHIPS["tpu7x"]
    runs = [tape([(OFFLOAD, 0, 0, moved, 5, 0), (WAIT, 0, 1, 0, 5, 0)]) for moved in (1 << 10, 1 << 27)]
    table, result = (run.cycles(chip, chip.constants) for run in runs)
    assert table >= chip.sparse_cores.start_s * chip.clock_hz
    assert result == 0


def test_another_constant_can_be_fitted_instead() -> None:
    free, values = [chip_fit.EFFICIENCY, chip_fit.scale("read_latency_cycles")], [0.9, 2.0]
    rows = rows_at("v5p", values, free)
    fitted = chip_fit.fit("v5p", rows, free)
    assert fitted.values == pytest.approx(values, rel=0.05)
    assert fitted.cost(rows) < chip_fit.fit("v5p", rows).cost(rows)
