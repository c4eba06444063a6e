"""Bands and the order of pairs, from predictions that are made up."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.lib.published import pairs, widths
from benchmarks.lib.published.cases import Array, Case
from benchmarks.lib.published.evaluate import WALL_JITTER_MS, Fold, Prediction, fold_of
from benchmarks.lib.published.fit import Timed
from benchmarks.lib.published.tape import Tape
from ratchet.account import band
from ratchet.chips import CHIPS

STREAM, MATMUL, GROUPED = "tpu-kernels scale (x*2)", "tpu-kernels matmul, pallas", "tokamax pallas_mosaic_tpu gmm"
_NUMBERS = itertools.count()


def predicted(
    modelled: float,
    measured: float,
    *,
    kernel: str = MATMUL,
    regime: str = band.COMPUTE,
    chip: str = "v5e",
    timer: str = "device",
    waits: float = 0.0,
) -> Prediction:
    number = str(next(_NUMBERS))
    case = Case(
        number=number, source="s", kernel=kernel, chip=chip, arrays=(Array(dtype="bf16", shape=(8, 8)),),
        config={"bn": "128"}, status="ok", measured_ms=measured, timer=timer, doubtful=False,
    )  # fmt: skip
    bundles = (modelled - waits) * 1e-3 * CHIPS[chip].clock_hz
    tape = Tape(events=np.zeros((0, 6), np.int64), tail_cycles=0, facts={"executed_bundles": bundles})
    return Prediction(
        row=Timed(case=case, tape=tape, identity=number), device_ms=modelled, dispatch_ms=0.0, regime=regime
    )


def test_pairs_are_ranked_by_kind_and_distance() -> None:
    rows = [predicted(m, t, kernel=STREAM) for m, t in ((1.0, 1.0), (1.03, 1.05), (1.1, 1.09))]
    rows += [predicted(1.0, 1.0), predicted(1.03, 0.9)]
    table = {(r.what, r.apart): (r.pairs, r.right) for r in pairs.by_kind([fold_of(rows)])}
    assert table["streaming, device clock", "2% to 4%"] == (1, 1.0)
    assert table["streaming, device clock", "4% to 8%"] == (1, 1.0)
    assert table["tiled matmul, device clock", "2% to 4%"] == (1, 0.0)
    assert table["all, device clock", "2% to 4%"] == (2, 0.5)


def test_kernels_shapes_and_chips_are_sweeps_of_their_own() -> None:
    rows = [predicted(1.0, 1.0), predicted(1.1, 1.2, kernel=STREAM), predicted(1.2, 1.3, chip="v6e")]
    assert pairs.by_kind([fold_of(rows)]) == []
    assert pairs.sweep_ranks([fold_of(rows)]) == []


def test_pairs_that_the_constants_were_fitted_on_do_not_count() -> None:
    rows = [predicted(1.0, 1.0), predicted(1.1, 1.2), predicted(1.3, 1.4)]
    new = Fold(left_out=frozenset({rows[0].row.case.number}), predictions=tuple(rows))
    assert sum(r.pairs for r in pairs.by_kind([new]) if r.what.startswith("all")) == 2
    assert new.held_out == (rows[0],)


def test_the_least_rank_of_a_sweep_counts() -> None:
    right = [predicted(1.0 + i, 1.0 + i) for i in range(5)]
    wrong = [replace(p, device_ms=9.0 - p.device_ms) for p in right]
    (sweep,) = pairs.sweep_ranks([fold_of(right), fold_of(wrong)])
    assert sweep.rank == pytest.approx(-1)


def test_rank_of_a_sweep() -> None:
    rows = [predicted(1 + i, 1 + i * i) for i in range(6)]
    (sweep,) = pairs.sweep_ranks([fold_of(rows)])
    assert (sweep.kind, sweep.programs, sweep.rank) == ("tiled matmul", 6, pytest.approx(1.0))
    assert pairs.sweep_ranks([fold_of(rows[:4])]) == []


def test_pairs_by_rule_are_timed_on_the_device() -> None:
    bands = {("v5e", band.COMPUTE): 0.05}
    traded = [predicted(1.0, 1.0, waits=0.5), predicted(1.01, 1.02, waits=0.4)]
    (row,) = pairs.by_rule([fold_of(traded)], bands)
    assert (row.what, row.apart, row.right) == ("counts as the same", "1% to 2%", 1.0)
    plain = [predicted(1.0, 1.0, waits=0.5, timer="wall"), predicted(1.01, 1.02, waits=0.4, timer="wall")]
    assert pairs.by_rule([fold_of(plain)], bands) == []


def test_a_width_holds_nine_in_ten_and_is_no_narrower_than_the_compilers_differ() -> None:
    rows = [predicted(1 + i / 100, 1.0) for i in range(20)]
    table = widths.widths(rows, {})
    assert table["v5e", band.COMPUTE].width == pytest.approx(0.18)
    assert table["v5e", band.COMPUTE].count == 20
    exact = widths.widths([predicted(1.0, 1.0)], {})
    assert exact["v5e", band.COMPUTE].width == widths.LEAST_WIDTH


def test_no_factor_widens_a_band_beyond_the_largest_error_of_several_kernels() -> None:
    rows = [predicted(1 + i / 100, 1.0) for i in range(20)]
    factors = {("v5e", band.COMPUTE): 2.0}
    assert widths.kept(rows, factors)["v5e", band.COMPUTE].width == pytest.approx(0.36)
    rows += [predicted(1.0, 1.0, kernel=kernel) for kernel in (STREAM, GROUPED)]
    assert widths.kept(rows, factors)["v5e", band.COMPUTE].width == pytest.approx(0.19)


def test_wall_clocks_count_where_profilers_timed_too_few_kernels() -> None:
    wall = predicted(1.5, 1.0, timer="wall")
    few = [predicted(1.0, 1.0), wall]
    assert widths.widths(few, {})["v5e", band.COMPUTE].width > 0.4
    enough = [*few, predicted(1.0, 1.0, kernel=GROUPED), predicted(1.0, 1.0, kernel=STREAM)]
    assert widths.widths(enough, {})["v5e", band.COMPUTE].width == widths.LEAST_WIDTH
    assert wall.error == pytest.approx(math.log(1.5) - WALL_JITTER_MS)
    assert predicted(1.01, 1.0, timer="wall").error == 0


def test_a_kernel_unlike_the_others_widens_the_band() -> None:
    rows = [predicted(1.03, 1.0) for _ in range(20)] + [predicted(1.05, 1.0, kernel=GROUPED) for _ in range(20)]
    key = ("v5e", band.COMPUTE)
    factors = widths.inflation(rows)
    assert factors[key] == pytest.approx(1.67, abs=0.02), "5 % from a kernel that is off by 3 %"
    assert {c.regime: c.inside for c in widths.coverage(rows, factors)}[band.COMPUTE] == 1
    assert {c.regime: c.inside for c in widths.coverage(rows, {})}[band.COMPUTE] == 0.5


def test_what_was_hardly_timed_gets_the_widest_of_its_chip_and_its_regime() -> None:
    rows = [predicted(1.03, 1.0), predicted(1.1, 1.0, regime=band.VECTOR), predicted(1.05, 1.0, chip="v6e")]
    few = [predicted(1.02, 1.0, chip="v5p") for _ in range(widths.FEWEST - 1)]
    table = widths.kept(rows * widths.FEWEST + few, {})
    assert table["v5p", band.COMPUTE].count == 0
    assert (table["v6e", band.VECTOR].count, table["v6e", band.VECTOR].width) == (0, pytest.approx(0.1))
    assert (table["v6e", band.LATENCY].count, table["v6e", band.LATENCY].width) == (0, pytest.approx(0.05))
    assert (table["v5e", band.COMPUTE].count, table["v5e", band.COMPUTE].width) == (5, pytest.approx(0.03))
    assert (table["v4", band.COMPUTE].count, table["v4", band.COMPUTE].width) == (0, pytest.approx(0.1))
    assert set(table) == {(chip, name) for chip in CHIPS for name in band.REGIMES}
