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
from ratchet.tpu.account import band
from ratchet.tpu.chips import CHIPS

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
    assert sweep.least == pytest.approx(-1)


def test_the_rank_of_a_sweep_is_that_of_programs_held_out() -> None:
    rows = [predicted(1.0 + i, 1.0 + i) for i in range(6)]
    wrong = [replace(p, device_ms=9.0 - p.device_ms) for p in rows]
    own = [p.row.case.number for p in rows]
    folds = [
        Fold(left_out=frozenset(own[:3]), predictions=(*rows[:3], *wrong[3:])),
        Fold(left_out=frozenset(own[3:]), predictions=(*rows[3:], *wrong[:3])),
    ]
    (sweep,) = pairs.sweep_ranks(folds)
    assert sweep.held_out == pytest.approx(1)
    assert sweep.least < 1


def test_rank_of_a_sweep() -> None:
    rows = [predicted(1 + i, 1 + i * i) for i in range(6)]
    (sweep,) = pairs.sweep_ranks([fold_of(rows)])
    assert (sweep.kind, sweep.programs, sweep.held_out) == ("tiled matmul", 6, pytest.approx(1.0))
    assert pairs.sweep_ranks([fold_of(rows[:4])]) == []


def test_pairs_by_rule_are_timed_on_the_device() -> None:
    bands = {("v5e", band.COMPUTE): 0.05}
    traded = [predicted(1.0, 1.0, waits=0.5), predicted(1.01, 1.02, waits=0.4)]
    (row,) = pairs.by_rule([fold_of(traded)], bands)
    assert (row.what, row.apart, row.right) == ("counts as the same", "1% to 2%", 1.0)
    plain = [predicted(1.0, 1.0, waits=0.5, timer="wall"), predicted(1.01, 1.02, waits=0.4, timer="wall")]
    assert pairs.by_rule([fold_of(plain)], bands) == []


def test_a_width_holds_nine_in_ten_of_kernels_to_come() -> None:
    """Kernels whose errors have one spread, as many timings each: the band of some holds the timings of others."""
    draw, hits, kernels = np.random.default_rng(0), 0, 300
    for _ in range(kernels):
        errors = draw.normal(0, 0.05, (3, 6))
        rows = [predicted(math.exp(e), 1.0, kernel=f"tokamax gmm {k}") for k in (0, 1) for e in errors[k]]
        width = widths.widths(rows)["v5e", band.COMPUTE].width
        hits += sum(abs(e) <= math.log1p(width) for e in errors[2])
    assert 0.9 < hits / (6 * kernels) < 0.98


def test_a_width_is_no_narrower_than_the_compilers_differ() -> None:
    exact = widths.widths([predicted(1.0, 1.0)])
    assert (exact["v5e", band.COMPUTE].width, exact["v5e", band.COMPUTE].count) == (widths.LEAST_WIDTH, 1)


def test_fewer_kernels_have_a_wider_band() -> None:
    kernels = (MATMUL, STREAM, GROUPED, "tokamax attention")
    known = [
        widths.widths([predicted(1.05, 1.0, kernel=name) for name in kernels[:count]])["v5e", band.COMPUTE]
        for count in range(1, 5)
    ]
    assert [one.kernels for one in known] == [1, 2, 3, 4]
    assert [one.width for one in known] == sorted((one.width for one in known), reverse=True)
    assert known[-1].width > 0.05


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
    assert (compute.regime, compute.count, compute.kernels) == (band.COMPUTE, 24, 3)
    assert compute.inside == every.inside == pytest.approx(18 / 24), "the kernel unlike the others is not in their band"
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


def test_coverage_of_a_kernel_alone_and_of_none() -> None:
    compute, _ = widths.coverage([predicted(1.05, 1.0), predicted(1.04, 1.0)])
    assert (compute.kernels, compute.inside, compute.inside_kept) == (1, 1, 1)
    assert compute.width == widths.widths([predicted(1.05, 1.0), predicted(1.04, 1.0)])["v5e", band.COMPUTE].width
    assert (widths.coverage([]), widths.widths([])) == ([], {})


def test_bands_that_are_kept_know_the_kernel_that_is_checked() -> None:
    rows = [predicted(ratio, 1.0, kernel=kernel) for kernel, ratio in ((MATMUL, 1.001), (GROUPED, 1.06)) for _ in "123"]
    compute, _ = widths.coverage(rows)
    assert compute.inside == 0.5
    assert compute.inside_kept == 1
