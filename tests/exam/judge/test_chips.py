"""A kernel judged for a chip other than v5e, with the real compiler."""

from pathlib import Path

import pytest

from prepare import judge
from ratchet.exam.judge.workers import Workers
from ratchet.tpu.chips import CHIPS
from ratchet.values import Verdict
from ratchet.values.status import Status
from tests.exam.judge.programs import request_of
from tests.kernels import LAYERNORM, edited

ASKS = """
def kernel_fn(*arrays):
    if jax.sharding.get_abstract_mesh().abstract_device.device_kind != "TPU v6 lite":
        raise ValueError("another chip")
    return _kernel_fn(*arrays)
"""


def verdict_on(chip: str, root: Path, source: str, workers: Workers) -> Verdict:
    return judge(request_of(root, source, f"{chip}-model"), workers=workers)


def test_a_kernel_is_traced_compiled_and_modelled_for_its_chip(tmp_path: Path, workers: Workers) -> None:
    asks = edited(LAYERNORM, ("def kernel_fn(", "def _kernel_fn(")) + ASKS
    verdict = verdict_on("v6e", tmp_path, asks, workers)
    assert verdict.status is Status.PASS, verdict.reason
    assert verdict.timeline is not None and verdict.footprint is not None  # noqa: PT018
    assert (verdict.timeline.chip, verdict.timeline.clock_hz) == ("v6e", CHIPS["v6e"].clock_hz)
    assert verdict.footprint.hbm_limit_bytes == CHIPS["v6e"].hbm_bytes

    lock = (tmp_path / "kernel.py.lock.json").read_bytes()
    refused = verdict_on("v4", tmp_path, asks, workers)
    assert refused.status is Status.LOWERING_FAILED
    assert "another chip" in refused.reason
    assert (tmp_path / "kernel.py.lock.json").read_bytes() == lock


@pytest.mark.slow
def test_a_program_equal_on_two_chips_is_executed_once_and_v4_is_refused_by_name(
    tmp_path: Path, workers: Workers
) -> None:
    first = verdict_on("v6e", tmp_path, LAYERNORM, workers)
    assert first.status is Status.PASS, first.reason
    second = verdict_on("v4", tmp_path, LAYERNORM, workers)
    assert second.status is Status.SCHEDULE_UNKNOWN
    assert "v4" in second.reason
    assert second.parity == first.parity, "the seconds, too"
    assert second.footprint is not None
