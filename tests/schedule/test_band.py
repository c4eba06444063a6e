"""Bands: regimes, conformal widths, and when two latencies count as the same."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.schedule import band
from ratchet.values import Timeline

BANDS = band.Bands(
    width={band.COMPUTE: 0.05, band.LATENCY: 0.1, band.BANDWIDTH: 0.08},
    resolution=0.02,
    count=dict.fromkeys(band.REGIMES, 50),
)


def timeline(cycles: int = 1_500_000, *, wait: int = 0, read: int = 0, chip: str = "v5e") -> Timeline:
    return Timeline(
        chip=chip, compiler="test", clock_hz=1.5e9, cycles=cycles, executed_bundles=cycles - wait, empty_bundles=0,
        dma_wait_cycles=wait, slot_issues={}, slot_capacity={}, mxu_busy_cycles=0, hbm_read_bytes=read,
        hbm_write_bytes=0, grid_steps=1, ops=(), spans=(), losses=(), not_modelled=(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "regime"),
    [
        ({}, band.COMPUTE),
        ({"wait": 300_000}, band.LATENCY),
        ({"read": 720_000_000}, band.BANDWIDTH),
        ({"read": 720_000_000, "wait": 300_000}, band.BANDWIDTH),
    ],
)
def test_regime(changes: dict[str, int], regime: str) -> None:
    assert band.regime(timeline(**changes)) == regime


def test_band_is_around_the_latency_and_as_wide_as_its_regime() -> None:
    found = band.band(timeline(), BANDS)
    assert found.regime == band.COMPUTE
    assert found.low_ms == pytest.approx(1 / 1.05)
    assert found.high_ms == pytest.approx(1.05)


def test_within_a_family_small_differences_count() -> None:
    a, b = timeline(1_500_000), timeline(1_450_000)
    assert band.same_within_band(a, b, same_family=False, bands=BANDS).same
    told_apart = band.same_within_band(a, b, same_family=True, bands=BANDS)
    assert not told_apart.same
    assert "2.00%" in told_apart.reason
    assert band.same_within_band(a, timeline(1_490_000), same_family=True, bands=BANDS).same


def test_other_chips_are_no_family() -> None:
    a, b = timeline(1_500_000), replace(timeline(1_450_000), chip="v5p")
    assert band.same_within_band(a, b, same_family=True, bands=BANDS).same


@given(st.integers(1000, 10**9), st.integers(1000, 10**9), st.booleans())
def test_sameness_is_symmetric(a: int, b: int, same_family: bool) -> None:
    one, other = timeline(a), timeline(b)
    forth = band.same_within_band(one, other, same_family=same_family, bands=BANDS)
    back = band.same_within_band(other, one, same_family=same_family, bands=BANDS)
    assert forth.same == back.same


@given(st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=60), st.floats(0.5, 0.95))
def test_width_holds_its_share_of_what_was_seen(errors: list[float], level: float) -> None:
    width = band.width_for(errors, level)
    inside = sum(abs(e) <= math.log1p(width) + 1e-9 for e in errors)
    assert inside >= min(len(errors), math.ceil(level * len(errors)))
    assert width <= math.expm1(max(abs(e) for e in errors)) + 1e-12


def test_width_covers_the_next_one() -> None:
    draw = random.Random(0)
    hits = 0
    for _ in range(2000):
        seen = [draw.gauss(0, 0.03) for _ in range(30)]
        hits += abs(draw.gauss(0, 0.03)) <= math.log1p(band.width_for(seen))
    assert 0.88 < hits / 2000 < 0.95


def test_resolution_is_where_ranking_becomes_reliable() -> None:
    draw = random.Random(1)
    pairs = []
    for _ in range(5000):
        true = draw.uniform(-0.3, 0.3)
        pairs.append((true + draw.gauss(0, 0.01), true))
    # The difference of a pair errs by 0.01: 95 % right from 1.645 * 0.01 on.
    assert 0.008 < band.resolution_for(pairs) < 0.03


def test_resolution_of_pairs_always_right_is_the_smallest() -> None:
    assert band.resolution_for([(0.1, 0.2), (-0.05, -0.01)]) == pytest.approx(math.expm1(0.05))


def test_resolution_is_infinite_where_nothing_is_ranked() -> None:
    assert band.resolution_for([(0.1, -0.2), (-0.05, 0.01)]) == math.inf


def test_nothing_to_learn_from() -> None:
    with pytest.raises(ValueError, match="no errors"):
        band.width_for([])
    with pytest.raises(ValueError, match="no pairs"):
        band.resolution_for([])


def test_the_stored_table_has_every_regime() -> None:
    table = band.stored()
    assert set(table.width) == set(band.REGIMES)
    assert all(0 < width < 0.3 for width in table.width.values())
    assert 0 < table.resolution < 0.3
