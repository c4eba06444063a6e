"""DMA queues and sync flags."""

from __future__ import annotations

import dataclasses
import math

import pytest

from ratchet.tpu.chips import V5E, V5P
from ratchet.tpu.machine.dma import DmaEngine
from ratchet.tpu.machine.hbm import CHANNEL_ROW_BYTES
from ratchet.values.status import Status
from tests.refusals import refused

# 32 B per cycle and granule, so that times can be read off.
SIMPLE = dataclasses.replace(
    V5E.constants,
    hbm_efficiency=32 * V5E.clock_hz / V5E.hbm_bytes_per_s,
    read_issue_cycles=30,
    read_latency_cycles=70,
    write_issue_cycles=5,
    turnaround_cycles=10,
    turnaround_bytes=32 * 1000,
    turnaround_width=0.0,
    read_spread=2.0,
    write_spread=4.0,
    write_rate=0.5,
    write_rate_bytes=32 * 100,
    write_piece_cycles=0.0,
    local_bytes_per_cycle=64,
    local_latency_cycles=10,
)


class Stuck(Exception):
    pass


# Copies in pieces of a whole row of channels are free of spread.
ROW = CHANNEL_ROW_BYTES // 32


def memory(**changed: float) -> DmaEngine:
    even = {"read_spread": 0.0, "write_spread": 0.0} | changed
    return DmaEngine(V5E, dataclasses.replace(SIMPLE, **even), Stuck)


IN, OUT, LOCAL = ("hbm", "vmem"), ("vmem", "hbm"), ("vmem", "smem")


@pytest.mark.parametrize(
    ("copies", "arrivals"),
    [
        pytest.param([(0, IN, 50)], [30 + 50 + 70], id="bytes and a latency"),
        pytest.param([(0, IN, 50), (0, IN, 10)], [150, 30 + 50 + 10 + 70], id="first in, first out"),
        pytest.param([(0, IN, 100), (100, IN, 10)], [200, 30 + 100 + 10 + 70], id="the queue hides its issue"),
        pytest.param([(0, IN, 100), (1000, IN, 10)], [200, 1000 + 30 + 10 + 70], id="an empty queue hides nothing"),
        pytest.param([(0, IN, 1000), (0, LOCAL, 20)], [1100, 20], id="local copies have a queue of their own"),
        # The first 100 granules of a write at half the rate, whatever comes behind it.
        pytest.param([(0, OUT, 500), (0, OUT, 10)], [5 + 10 + 500 + 100, 5 + 10 + 510 + 10], id="writes lag"),
    ],
)
def test_when_copies_arrive(copies: list[tuple[int, tuple[str, str], int]], arrivals: list[int]) -> None:
    m = memory()
    for flag, (now, (source, target), granules) in enumerate(copies):
        m.start(now, source, target, granules, flag)
    assert [m.reached(flag, granules) for flag, (_, _, granules) in enumerate(copies)] == arrivals


def test_a_wait_is_counted_and_never_ends_before_it_begins() -> None:
    m = memory()
    m.start(0, "hbm", "vmem", 50, flag=1)
    m.start(0, "hbm", "vmem", 10, flag=2)
    assert m.wait(0, 2, 10, address=0) == 160
    assert m.wait(160, 1, 50, address=0) == 160
    assert (m.wait_cycles, m.read_granules, m.waited_on) == (160, 60, {2: 160})
    assert m.value(160, 1) == 50


def test_a_core_that_works_alone_has_the_bandwidth_of_all() -> None:
    m = DmaEngine(V5P, dataclasses.replace(V5P.constants, read_spread=0.0), Stuck)
    latency = V5P.constants.read_issue_cycles + V5P.constants.read_latency_cycles
    shared = m.start(0, "hbm", "vmem", 10_000, flag=1) - latency
    m.shared_by(1)
    alone = m.start(100_000, "hbm", "vmem", 10_000, flag=2) - 100_000 - latency
    m.shared_by(2)
    assert m.start(200_000, "hbm", "vmem", 10_000, flag=3) - 200_000 - latency == pytest.approx(shared)
    assert shared == pytest.approx(2 * alone)
    assert alone == pytest.approx(320_000 / V5P.achievable_hbm_bytes_per_s * V5P.clock_hz)


def test_hbm_turns_around_between_directions() -> None:
    m = memory(write_rate=1.0)
    m.start(0, "vmem", "hbm", 2 * ROW, flag=1)
    assert m.wait(0, 1, 2 * ROW, address=0) == 5 + 10 + 2 * ROW + 1  # more than turnaround_bytes, a bit
    m.start(0, "hbm", "vmem", 10, flag=2)
    assert m.wait(0, 2, 10, address=0) > 5 + 10 + 2 * ROW + 10 + 10 + 70
    same = memory(write_rate=1.0)
    same.start(0, "vmem", "hbm", 100, flag=1)
    same.start(0, "vmem", "hbm", 100, flag=2)
    assert same.hbm_busy_cycles == 10 + 200


def test_hbm_turns_around_sooner_in_wide_pieces() -> None:
    busy = []
    for piece in (ROW // 8, ROW // 4, ROW // 2, ROW, 2 * ROW, 4 * ROW, 8 * ROW):
        m = memory(turnaround_width=0.25, write_rate=1.0)
        m.start(0, "vmem", "hbm", 8 * ROW, flag=1, piece=piece)
        busy.append(m.hbm_busy_cycles - 8 * ROW)
    times = 8 * ROW / 1000  # a copy of one direction turns around so many times, in pieces of one row
    assert busy == pytest.approx([10 * times * sooner for sooner in (0.5, 0.5, 0.75, 1, 1.25, 1.5, 1.5)])


def test_pieces_narrower_than_a_row_of_channels_end_late() -> None:
    whole, narrow = memory(read_spread=2.0), memory(read_spread=2.0)
    for m, piece in ((whole, ROW), (narrow, ROW // 8)):
        m.start(0, "hbm", "vmem", ROW, flag=1, piece=piece)
    assert whole.reached(1, ROW) == 30 + ROW + 70
    spread = math.sqrt(ROW * 32 * (ROW * 32 - ROW * 4)) / 32
    assert narrow.reached(1, ROW) == pytest.approx(30 + ROW + 70 + 2 * spread)
    assert narrow.hbm_busy_cycles == whole.hbm_busy_cycles


def test_uneven_copies_ahead_in_the_queue_add_to_the_spread() -> None:
    m = memory(read_spread=2.0)
    m.start(0, "hbm", "vmem", ROW, flag=1, piece=ROW // 8)
    m.start(0, "hbm", "vmem", ROW, flag=2, piece=ROW)
    assert m.reached(2, ROW) > 30 + 2 * ROW + 70
    idle = memory(read_spread=2.0)
    idle.start(0, "hbm", "vmem", ROW, flag=1, piece=ROW // 8)
    idle.start(100_000, "hbm", "vmem", ROW, flag=2, piece=ROW)
    assert idle.reached(2, ROW) == 100_000 + 30 + ROW + 70


def test_narrow_pieces_of_a_write_occupy_hbm() -> None:
    wide, narrow = memory(write_piece_cycles=1.0), memory(write_piece_cycles=1.0)
    wide.start(0, "vmem", "hbm", ROW, flag=1, piece=ROW // 2)  # 8 KiB
    narrow.start(0, "vmem", "hbm", ROW, flag=1, piece=ROW // 8)
    assert wide.hbm_busy_cycles == 10 + ROW
    assert narrow.hbm_busy_cycles == 10 + ROW + 8 * (1 - 1 / 4)


def test_a_copy_within_hbm_is_read_and_written() -> None:
    m = memory()
    m.start(0, "hbm", "hbm", 100, flag=1)
    assert (m.read_granules, m.write_granules) == (100, 100)
    assert m.hbm_busy_cycles == 200 + 10


def test_copies_may_share_a_flag_and_waits_may_take_part_of_it() -> None:
    m = memory()
    m.start(0, "hbm", "vmem", 50, flag=1)
    m.start(0, "hbm", "vmem", 50, flag=1)
    assert m.wait(0, 1, 50, address=0) == 150
    m.add(1, -50)
    assert m.wait(150, 1, 50, address=0) == 200


def test_a_wait_for_nothing_is_a_deadlock() -> None:
    m = memory()
    m.start(0, "hbm", "vmem", 50, flag=1)
    with pytest.raises(Stuck) as stuck:
        m.wait(0, 1, 51, address=7)
    assert stuck.value.args == (1, 50, 51, 7)


def test_unfitted_chip_is_refused() -> None:
    with refused(Status.USAGE):
        _ = dataclasses.replace(V5E, name="v9").constants
