"""Errors, bands and the order of pairs, from predictions that are made up."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lib.published import accuracy, errors, widths
from benchmarks.lib.published.evaluate import WALL_JITTER_MS, Fold, Prediction, fold_of
from ratchet.tpu.account import band
from ratchet.tpu.chips import CHIPS
from tests.benchmarks.made_up import case, tape, timed

STREAM, MATMUL, GROUPED = "tpu-kernels scale (x*2)", "tpu-kernels matmul, pallas", "tokamax pallas_mosaic_tpu gmm"
POSITIVE = st.floats(0.1, 100)
_NUMBERS = itertools.count()


def test_a_summary() -> None:
    found = errors.summarise([1.0, 2.0, 4.0], [1.1, 2.0, 3.0])
    assert (found.mean, found.median, found.largest, found.bias) == pytest.approx((0.35 / 3, 0.1, 0.25, -0.05))
    assert found.columns("mean", "bias") == {"rows": 3, "mean": "11.67%", "bias": "-5.00%"}
    with pytest.raises(ValueError, match="0 measured"):
        errors.summarise([], [])


@given(st.lists(POSITIVE, min_size=2, max_size=20, unique=True))
def test_order_alone_decides_the_rank_correlation(values: list[float]) -> None:
    assert errors.rank_correlation(values, [value**3 for value in values]) == pytest.approx(1)
    assert errors.rank_correlation(values, [-value for value in values]) == pytest.approx(-1)
    assert errors.rank_correlation([1, 2, 2, 3], [1, 2, 2, 3]) == pytest.approx(1), "ties share their rank"
    assert errors.rank_correlation([1, 1, 1], [1, 2, 3]) == 0


@given(st.lists(POSITIVE, min_size=1, max_size=20), st.floats(0, 5))
def test_a_constant_is_found_again(modelled: list[float], constant: float) -> None:
    measured = [value + constant for value in modelled]
    assert errors.dispatch_ms(measured, modelled) == pytest.approx(constant, abs=1e-9)
    assert errors.dispatch_left_out_ms(measured, modelled) == pytest.approx([constant] * len(modelled), abs=1e-9)


def test_an_outlier_does_not_move_the_constant_and_a_call_takes_no_less_than_its_program() -> None:
    assert errors.dispatch_ms([1.2, 2.2, 3.2, 4.2, 9.0], [1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(0.2)
    assert errors.dispatch_ms([1.0], [2.0]) == 0


def predicted(
    modelled: float, measured: float, *, regime: str = band.COMPUTE, waits: float = 0.0, **other: Any
) -> Prediction:
    known = {"kernel": MATMUL, "config": {"bn": "128"}, "measured_ms": measured}
    one = case(next(_NUMBERS), **known | other)
    row = timed(one, tape(executed_bundles=(modelled - waits) * 1e-3 * CHIPS[one.chip].clock_hz))
    return Prediction(row=row, device_ms=modelled, dispatch_ms=0.0, regime=regime)


def test_pairs_are_ranked_by_kind_and_distance() -> None:
    rows = [predicted(m, t, kernel=STREAM) for m, t in ((1.0, 1.0), (1.03, 1.05), (1.1, 1.09))]
    rows += [predicted(1.0, 1.0), predicted(1.03, 0.9)]
    table = {tuple(row.values()) for row in accuracy.pairs_by_kind([fold_of(rows)])}
    assert table >= {
        ("streaming, device clock", "2% to 4%", 1, "100.0%"),
        ("streaming, device clock", "4% to 8%", 1, "100.0%"),
        ("tiled matmul, device clock", "2% to 4%", 1, "0.0%"),
        ("all, device clock", "2% to 4%", 2, "50.0%"),
    }
    apart = [predicted(1.0, 1.0), predicted(1.1, 1.2, kernel=STREAM), predicted(1.2, 1.3, chip="v6e")]
    assert accuracy.pairs_by_kind([fold_of(apart)]) == accuracy.by_sweep([fold_of(apart)]) == []


def test_pairs_that_the_constants_were_fitted_on_do_not_count() -> None:
    rows = [predicted(1.0, 1.0), predicted(1.1, 1.2), predicted(1.3, 1.4)]
    new = Fold(left_out=frozenset({rows[0].row.case.number}), predictions=tuple(rows))
    assert sum(row["pairs"] for row in accuracy.pairs_by_kind([new]) if row["kind"].startswith("all")) == 2
    assert new.held_out == (rows[0],)


def test_the_rank_of_a_sweep_is_that_of_programs_held_out_and_the_least_of_all_fits_beside_it() -> None:
    rows = [predicted(1.0 + i, 1.0 + i * i) for i in range(6)]
    wrong = [replace(p, device_ms=9.0 - p.device_ms) for p in rows]
    own = [p.row.case.number for p in rows]
    folds = [
        Fold(left_out=frozenset(own[:3]), predictions=(*rows[:3], *wrong[3:])),
        Fold(left_out=frozenset(own[3:]), predictions=(*rows[3:], *wrong[:3])),
    ]
    (sweep,) = accuracy.by_sweep(folds)
    assert (sweep["kind"], sweep["programs"], sweep["rank"]) == ("tiled matmul", 6, "1.0000")
    assert float(sweep["least of all fits"]) < 1
    (sweep,) = accuracy.by_sweep([fold_of(rows), fold_of(wrong)])
    assert sweep["least of all fits"] == "-1.0000"
    assert accuracy.by_sweep([fold_of(rows[:4])]) == []


def test_pairs_by_rule_are_timed_on_the_device() -> None:
    bands = {("v5e", band.COMPUTE): 0.05}
    traded = [predicted(1.0, 1.0, waits=0.5), predicted(1.01, 1.02, waits=0.4)]
    (row,) = accuracy.pairs_by_rule([fold_of(traded)], bands)
    assert tuple(row.values()) == ("counts as the same", "1% to 2%", 1, "100.0%")
    plain = [predicted(1.0, 1.0, waits=0.5, timer="wall"), predicted(1.01, 1.02, waits=0.4, timer="wall")]
    assert accuracy.pairs_by_rule([fold_of(plain)], bands) == []


def test_a_width_holds_nine_in_ten_of_kernels_to_come() -> None:
    """Kernels whose errors have one spread, as many timings each: the band of some holds the timings of others."""
    draw, hits, kernels = np.random.default_rng(0), 0, 300
    for _ in range(kernels):
        off = draw.normal(0, 0.05, (3, 6))
        rows = [predicted(math.exp(e), 1.0, kernel=f"tokamax gmm {k}") for k in (0, 1) for e in off[k]]
        width = widths.widths(rows)["v5e", band.COMPUTE].width
        hits += sum(abs(e) <= math.log1p(width) for e in off[2])
    assert 0.9 < hits / (6 * kernels) < 0.98
    few, more = (
        widths.widths([predicted(1.05, 1.0, kernel=f"tokamax gmm {k}") for k in range(count)])["v5e", band.COMPUTE]
        for count in (1, 4)
    )
    assert few.width > more.width > 0.05, "fewer kernels have a wider band"


def test_the_scale_of_a_kernel_is_that_of_nine_in_ten_of_its_errors() -> None:
    draw = np.random.default_rng(1)
    many = np.abs(draw.normal(0, 0.05, 2000)).tolist()
    assert widths.scale(many) == pytest.approx(0.05, rel=0.05)
    assert widths.scale([*many, 9.0]) == pytest.approx(0.05, rel=0.05), "one that is far off counts as one"
    few = [widths.scale(np.abs(draw.normal(0, 0.05, 3)).tolist()) for _ in range(2000)]
    assert 0.05 < np.mean(few) < 0.06, "few are no reason for a narrower one"
    assert widths.scale([0.05]) > 0.05, "half of all errors are smaller than one that was seen"


def test_wall_clocks_count_where_no_profiler_timed_a_kernel() -> None:
    wall = predicted(1.5, 1.0, timer="wall")
    assert widths.widths([wall])["v5e", band.COMPUTE].width > 0.4
    assert widths.widths([wall, predicted(1.0, 1.0)])["v5e", band.COMPUTE].width == widths.LEAST_WIDTH
    assert wall.error == pytest.approx(math.log(1.5) - WALL_JITTER_MS)
    assert predicted(1.01, 1.0, timer="wall").error == 0


def test_coverage_is_of_kernels_held_out() -> None:
    rows = [predicted(1.001, 1.0, kernel=kernel) for kernel in (MATMUL, STREAM) for _ in range(9)]
    rows += [predicted(1.4, 1.0, kernel=GROUPED) for _ in range(6)]
    compute, every = widths.coverage(rows)
    assert (compute["bound by"], compute["cases"], compute["kernels"]) == (band.COMPUTE, 24, 3)
    inside = pytest.approx(18 / 24)
    assert compute["inside"] == every["inside"] == inside, "the kernel unlike the others is not in their band"
    with_it, without = (widths.widths(own)["v5e", band.COMPUTE].width for own in (rows, rows[:18]))
    assert with_it > 5 * without, "and the band is widened by it"


def test_what_was_not_timed_has_a_band_from_its_chip_and_its_regime() -> None:
    rows = [
        predicted(1.03, 1.0),
        predicted(1.2, 1.0, regime=band.LATENCY),
        predicted(1.1, 1.0, chip="v6e", regime=band.VECTOR),
    ]
    table = widths.widths(rows)
    assert set(table) == {(chip, name) for chip in CHIPS for name in band.REGIMES}
    for key in (("v5e", band.VECTOR), ("v6e", band.COMPUTE), ("v4", band.LATENCY)):
        assert (table[key].count, table[key].kernels) == (0, 0)
    near = {key: entry.width for key, entry in table.items()}
    assert near["v6e", band.COMPUTE] < near["v6e", band.LATENCY], "its regime was off by less elsewhere"
    assert near["v4", band.COMPUTE] < near["v4", band.VECTOR] < near["v4", band.LATENCY]
    with pytest.raises(ValueError, match="no errors"):
        widths.width_for({}, ("v5e", band.COMPUTE))


def test_coverage_of_a_kernel_alone_and_of_none_and_with_bands_that_know_the_kernel() -> None:
    own = [predicted(1.05, 1.0), predicted(1.04, 1.0)]
    compute, _ = widths.coverage(own)
    assert (compute["kernels"], compute["inside"], compute["inside kept"]) == (1, 1, 1)
    assert compute["half-width"] == pytest.approx(widths.widths(own)["v5e", band.COMPUTE].width)
    assert (widths.coverage([]), widths.widths([])) == ([], {})
    rows = [predicted(ratio, 1.0, kernel=kernel) for kernel, ratio in ((MATMUL, 1.001), (GROUPED, 1.06)) for _ in "123"]
    compute, _ = widths.coverage(rows)
    assert (compute["inside"], compute["inside kept"]) == (0.5, 1)
