"""Cycles of golden dumps are pinned with constants of their own, so that a refit moves no expectation."""

import pytest

from ratchet.chips import constants

_VALUES = {
    "hbm_efficiency": 0.88,
    "dma_latency_cycles": 667,
    "write_cost": 1.06,
    "local_bytes_per_cycle": 1092,
    "local_latency_cycles": 333,
}
_ENTRY = {**_VALUES, "source": "pinned", "checked": "never"}
_PINNED = {"chips": {"v5e": _ENTRY, "v5p": _ENTRY}}


@pytest.fixture(autouse=True)
def pinned_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "stored", lambda: _PINNED)
