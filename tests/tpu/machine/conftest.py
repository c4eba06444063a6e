"""Cycles of golden dumps are pinned with constants of their own, so that a refit moves no expectation."""

import pytest

from ratchet.tpu.chips import fitted

_VALUES = {
    "hbm_efficiency": 0.92,
    "read_issue_cycles": 200,
    "read_latency_cycles": 330,
    "write_issue_cycles": 30,
    "turnaround_cycles": 100,
    "turnaround_bytes": 400_000,
    "turnaround_width": 0.05,
    "read_spread": 2.0,
    "write_spread": 3.5,
    "write_rate": 0.4,
    "write_rate_bytes": 320_000,
    "write_piece_cycles": 0.8,
    "local_bytes_per_cycle": 1092,
    "local_latency_cycles": 333,
}


@pytest.fixture(autouse=True)
def pinned_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = {name: {"value": value} for name, value in _VALUES.items()}
    chips = {name: {**known, "constants": pinned} for name, known in fitted.stored()["chips"].items()}
    monkeypatch.setattr(fitted, "stored", lambda: {"chips": chips})
