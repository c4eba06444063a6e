"""The stored constants of memory: what was fitted on no timing of a chip follows from the v5e."""

from __future__ import annotations

import pytest

from ratchet.tpu.chips import CHIPS, V5E

LONGER = {("v6e", "read_latency_cycles"), ("tpu7x", "read_latency_cycles")}
SHORTER = {("tpu7x", "turnaround_cycles")}
"""Fitted on timings of the chip."""
OTHERS = sorted(set(CHIPS) - {"v5e"})


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(
    "constant", ["read_issue_cycles", "read_latency_cycles", "write_issue_cycles", "turnaround_cycles"]
)
def test_times_are_equal_in_seconds(name: str, constant: str) -> None:
    chip = CHIPS[name]
    seconds = getattr(chip.constants, constant) / chip.clock_hz
    expected = getattr(V5E.constants, constant) / V5E.clock_hz
    if (name, constant) in LONGER:
        assert seconds > expected
    elif (name, constant) in SHORTER:
        assert seconds < expected
    else:
        assert seconds == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("constant", ["turnaround_bytes", "write_rate_bytes"])
def test_bytes_that_wait_grow_with_the_bandwidth(name: str, constant: str) -> None:
    chip = CHIPS[name]
    expected = getattr(V5E.constants, constant) / V5E.hbm_bytes_per_s
    assert getattr(chip.constants, constant) / chip.hbm_bytes_per_s == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("name", OTHERS)
def test_a_narrow_piece_costs_less_where_there_are_more_channels(name: str) -> None:
    chip = CHIPS[name]
    seconds = chip.constants.write_piece_cycles / chip.clock_hz
    expected = V5E.constants.write_piece_cycles / V5E.clock_hz * V5E.hbm_bytes_per_s / chip.hbm_bytes_per_s
    assert seconds == pytest.approx(expected, rel=1e-3)
