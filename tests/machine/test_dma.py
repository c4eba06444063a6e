"""DMA queues and sync flags."""

from __future__ import annotations

import dataclasses

import pytest

from ratchet.chips import V5E
from ratchet.machine.dma import DmaEngine
from ratchet.values.status import Refusal, Status

# 32 B per cycle and granule, so that times can be read off.
SIMPLE = dataclasses.replace(
    V5E.constants,
    hbm_efficiency=32 * V5E.clock_hz / V5E.hbm_bytes_per_s,
    dma_latency_cycles=100,
    write_cost=2.0,
    local_bytes_per_cycle=64,
    local_latency_cycles=10,
)


class Stuck(Exception):
    pass


def memory() -> DmaEngine:
    return DmaEngine(V5E, SIMPLE, Stuck)


def test_one_copy_takes_its_bytes_and_a_latency() -> None:
    m = memory()
    m.start(0, "hbm", "vmem", 50, flag=1)
    assert m.wait(0, 1, 50, address=0) == 150
    assert (m.wait_cycles, m.read_granules, m.waited_on) == (150, 50, {1: 150})


def test_first_in_first_out() -> None:
    m = memory()
    m.start(0, "hbm", "vmem", 50, flag=1)
    m.start(0, "vmem", "hbm", 10, flag=2)
    assert m.wait(0, 2, 10, address=0) == 50 + 20 + 100
    assert m.wait(170, 1, 50, address=0) == 170


def test_copies_may_share_a_flag_and_waits_may_take_part_of_it() -> None:
    m = memory()
    m.start(0, "hbm", "vmem", 50, flag=1)
    m.start(0, "hbm", "vmem", 50, flag=1)
    assert m.wait(0, 1, 50, address=0) == 150
    m.add(1, -50)
    assert m.wait(150, 1, 50, address=0) == 200


def test_local_copies_do_not_queue_behind_hbm() -> None:
    m = memory()
    m.start(0, "hbm", "vmem", 1000, flag=1)
    m.start(0, "vmem", "smem", 20, flag=2)
    assert m.wait(0, 2, 20, address=0) == 20
    assert m.value(20, 1) == 0


def test_a_wait_for_nothing_is_a_deadlock() -> None:
    m = memory()
    m.start(0, "hbm", "vmem", 50, flag=1)
    with pytest.raises(Stuck) as stuck:
        m.wait(0, 1, 51, address=7)
    assert stuck.value.args == (1, 50, 51, 7)


def test_unfitted_chip_is_refused() -> None:
    with pytest.raises(Refusal) as refusal:
        _ = dataclasses.replace(V5E, name="v9").constants
    assert refusal.value.status is Status.USAGE
