"""Bands: regimes, and the stored table."""

import math
from dataclasses import replace

import pytest

from ratchet.tpu.account import band
from ratchet.tpu.chips import CHIPS
from ratchet.values import Blame, Timeline

BANDS = band.Bands(
    width={("v5e", band.COMPUTE): 0.05, ("v5e", band.VECTOR): 0.2, ("v5p", band.VECTOR): 0.3},
    count={("v5e", band.COMPUTE): 50, ("v5e", band.VECTOR): 6, ("v5p", band.VECTOR): 0},
)


def timeline(
    cycles: int = 1_500_000, *, wait: int = 0, read: int = 0, matrix: int = 900_000, chip: str = "v5e"
) -> Timeline:
    return Timeline(
        chip=chip, compiler="test", clock_hz=1.5e9, cycles=cycles, executed_bundles=cycles - wait, empty_bundles=0,
        dma_wait_cycles=wait, slot_issues={}, slot_capacity={}, mxu_busy_cycles=matrix, hbm_read_bytes=read,
        hbm_write_bytes=0, grid_steps=1, ops=(), spans=(), not_modelled=(),
        blame=Blame(lines=(), regions=(), steps=(), losses=()),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "regime"),
    [
        ({}, band.COMPUTE),
        ({"wait": 300_000}, band.LATENCY),
        ({"read": 720_000_000}, band.BANDWIDTH),
        ({"read": 720_000_000, "wait": 300_000}, band.BANDWIDTH),
        ({"matrix": 300_000}, band.VECTOR),
        ({"matrix": 300_000, "wait": 300_000}, band.LATENCY),
    ],
)
def test_regime(changes: dict[str, int], regime: str) -> None:
    assert band.regime(timeline(**changes)) == regime


def test_each_chip_has_its_own_band() -> None:
    widths = [band.band(timeline(matrix=0, chip=chip), BANDS).high_ms for chip in ("v5e", "v5p")]
    assert widths == pytest.approx([1.2, 1.3])


def test_band_is_around_the_latency_and_as_wide_as_its_regime() -> None:
    found = band.band(timeline(), BANDS)
    assert found.bound_by == band.COMPUTE
    assert found.low_ms == pytest.approx(1 / 1.05)
    assert found.high_ms == pytest.approx(1.05)


def test_the_stored_table_has_every_chip_and_regime() -> None:
    table = band.stored()
    assert set(table.width) == {(chip, name) for chip in CHIPS for name in band.REGIMES}
    assert all(0.02 <= width < 0.5 for width in table.width.values())


def test_what_is_not_known_of_the_links_counts_while_chips_wait_for_them() -> None:
    alone = timeline(chip="tpu7x")
    slice_ = replace(alone, chips=(alone,) * 8, ici_wait_cycles=alone.cycles // 2)
    spread = CHIPS["tpu7x"].links.spread
    bands = band.Bands(width={("tpu7x", band.COMPUTE): 0.03}, count={})
    width = band.band(slice_, bands).high_ms / slice_.latency_ms - 1
    assert width == pytest.approx(math.hypot(0.03, spread / 2))
    assert band.band(alone, bands).high_ms == pytest.approx(1.03 * alone.latency_ms)
