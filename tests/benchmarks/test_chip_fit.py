"""Fitting the chips other than v5e, on made-up tapes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.lib.published import chip_fit
from benchmarks.lib.published.cases import Array, Case
from benchmarks.lib.published.fit import Timed
from benchmarks.lib.published.tape import OFFLOAD, START, WAIT, Tape
from ratchet.tpu.chips import CHIPS, V5E

HBM_TO_VMEM = 1


def case(chip: str, rows: int, source: str = "tokamax (2026-07-16 abc)") -> Case:
    return Case(
        number=f"x.csv:{rows}", source=source, kernel="tokamax pallas_mosaic_tpu_flash_attention", chip=chip,
        arrays=(Array(dtype="bf16", shape=(rows, 128)),), config={}, status="ok", measured_ms=1.0, timer="device",
        doubtful=False,
    )  # fmt: skip


def tape(copies: int, granules: int, compute: int) -> Tape:
    """Copies from HBM that are waited for one by one, with cycles between them."""
    events = []
    for flag in range(1, copies + 1):
        events += [(START, compute, HBM_TO_VMEM, granules, flag, 0), (WAIT, 0, granules, 0, flag, 0)]
    return Tape(events=np.array(events, np.int64), tail_cycles=0, facts={})


def rows_at(chip: str, values: list[float]) -> list[Timed]:
    """Rows that were timed just as these values say."""
    shapes = [
        (20, 400_000, 100), (10, 1_000_000, 100), (40, 200_000, 100), (60, 2000, 8000), (10, 1000, 50_000),
        (200, 500, 200), (400, 100, 100),
    ]  # fmt: skip
    made = [Timed(case=case(chip, n), tape=tape(*shape), identity=str(n)) for n, shape in enumerate(shapes, 1)]
    times = chip_fit.modelled_ms(chip, made, values)
    return [replace(row, case=replace(row.case, measured_ms=float(ms))) for row, ms in zip(made, times, strict=True)]


def test_a_share_of_the_bandwidth_is_found_again_and_held_out() -> None:
    fitted = chip_fit.fit("v6e", rows_at("v6e", [0.82, 0.2]))
    assert fitted.values[0] == pytest.approx(0.82, abs=0.01)
    measured = [row.measured_ms for row in rows_at("v6e", [0.82, 0.2])]
    assert fitted.ms == pytest.approx(measured, rel=0.01)
    assert fitted.held_out_ms != fitted.ms
    assert fitted.held_out_ms == pytest.approx(measured, rel=0.02)


def test_a_wall_clock_adds_a_constant_that_is_fitted_beside_the_values() -> None:
    by_profiler = rows_at("v6e", [0.82, 0.2])[:3]
    others = rows_at("v6e", [0.82, 0.2])[3:]
    by_wall = [
        replace(row, case=replace(row.case, timer="wall", source="b@1", measured_ms=row.measured_ms + 0.2))
        for row in others
    ]
    fitted = chip_fit.fit("v6e", [*by_profiler, *by_wall])
    assert fitted.values == pytest.approx((0.82, 0.2), abs=0.02)
    assert fitted.dispatch_ms[:3] == (0, 0, 0)
    assert fitted.dispatch_ms[3:] == pytest.approx([0.2] * len(by_wall), abs=0.01)
    assert fitted.ms == pytest.approx([row.measured_ms for row in (*by_profiler, *by_wall)], rel=0.02)


def test_clock_and_latency_are_told_apart() -> None:
    fitted = chip_fit.fit("tpu7x", rows_at("tpu7x", [0.9, 1.8, 0.5, 1.0]))
    assert fitted.values[1:3] == pytest.approx((1.8, 0.5), rel=0.03)


def test_what_is_not_fitted_follows_from_the_v5e() -> None:
    clock, constants = chip_fit.constants_with("v6e", [0.82, 0.2])
    assert clock == CHIPS["v6e"].clock_hz
    assert constants.hbm_efficiency == 0.82
    latency = V5E.constants.read_latency_cycles / V5E.clock_hz + 0.2e-6
    assert constants.read_latency_cycles / clock == pytest.approx(latency)
    wider = CHIPS["v6e"].hbm_bytes_per_s / V5E.hbm_bytes_per_s
    assert constants.turnaround_bytes == pytest.approx(V5E.constants.turnaround_bytes * wider)


def test_in_older_timings_the_tensor_core_copies_the_result() -> None:
    old = replace(case("tpu7x", 1), source="tokamax (2026-02-28 abc)")
    assert (old.older, case("tpu7x", 1).older, replace(old, chip="v6e").older) == (True, False, False)
    moved = 1 << 27
    events = np.array([(OFFLOAD, 9, core, moved, 5 + core, 0) for core in (0, 1)], np.int64)
    copied = Tape(events=events, tail_cycles=100, facts={})
    rows = [Timed(case=c, tape=copied, identity="one") for c in (old, case("tpu7x", 1))]
    slower, faster = chip_fit.modelled_ms("tpu7x", rows, [0.9, 1.8, 0.5, 1.0])
    assert slower - faster == pytest.approx(moved / (0.9 * CHIPS["tpu7x"].hbm_bytes_per_s) * 1e3, rel=1e-3)


def test_a_turnaround_shorter_than_that_of_the_v5e_is_fitted() -> None:
    _, shorter = chip_fit.constants_with("tpu7x", [0.9, 1.8, 0.5, 0.25])
    _, equal = chip_fit.constants_with("tpu7x", [0.9, 1.8, 0.5, 1.0])
    assert shorter.turnaround_cycles == pytest.approx(equal.turnaround_cycles / 4)
    assert shorter.turnaround_bytes == equal.turnaround_bytes
    assert equal.turnaround_cycles / 1.8e9 == pytest.approx(V5E.constants.turnaround_cycles / V5E.clock_hz)


def test_a_result_that_a_sparse_core_copies_takes_no_time_of_the_tensor_core() -> None:
    chip = CHIPS["tpu7x"]
    cycles = []
    for moved in (1 << 10, 1 << 27):
        events = np.array([(OFFLOAD, 0, 0, moved, 5, 0), (WAIT, 0, 1, 0, 5, 0)], np.int64)
        cycles.append(Tape(events=events, tail_cycles=0, facts={}).cycles(chip, chip.constants))
    assert cycles[0] >= chip.sparse_cores.start_s * chip.clock_hz
    assert cycles[1] == 0


def test_another_constant_can_be_fitted_instead() -> None:
    free = [chip_fit.EFFICIENCY, chip_fit.scale("read_latency_cycles")]
    rows = rows_at("v5p", [0.9])
    values = [0.9, 2.0]
    times = chip_fit.modelled_ms("v5p", rows, values, free)
    slower = [replace(row, case=replace(row.case, measured_ms=float(ms))) for row, ms in zip(rows, times, strict=True)]
    fitted = chip_fit.fit("v5p", slower, free)
    assert fitted.values == pytest.approx(values, rel=0.05)
    assert fitted.cost(slower) < chip_fit.fit("v5p", slower).cost(slower)
