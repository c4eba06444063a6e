"""Programs on slices, from the kernel file to the verdict: right ones on each topology, wrong ones refused."""

import jax
import pytest

from benchmarks.lib.judged import verdict
from benchmarks.slices.__main__ import TOPOLOGIES
from benchmarks.slices.programs import PROGRAMS
from ratchet.exam.judge.workers import Workers
from ratchet.tpu.chips import CHIPS
from ratchet.values.omission import Unmodelled
from ratchet.values.status import Status
from tests.tiers import slow_but

NAMED = {one.name: one for one in PROGRAMS}


@pytest.fixture
def judged():
    """Of a program by its name, on a topology, in a wrong way or right."""

    def of(name, topology, wrong=""):
        chip, count = TOPOLOGIES[topology]
        with Workers(CHIPS[chip]) as workers:
            return verdict(NAMED[name].source(count, wrong), chip, workers)

    return of


@pytest.mark.parametrize("topology", slow_but(1, ["v6e:2x2", "v5p:2x2x1", "tpu7x:2x2x1", "v5e:2x4"]))
def test_a_kernel_that_sends_is_executed_and_modelled_on_every_device(judged, topology):
    said = judged("pairs exchange", topology)
    assert said.status is Status.PASS, said.reason
    assert len(said.timeline.chips) == TOPOLOGIES[topology][1]
    assert sum(link.bytes for link in said.timeline.links) >= 64 * 256 * 4 * TOPOLOGIES[topology][1]
    assert said.score.band.low_ms < said.score.latency_ms < said.score.band.high_ms


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wrong", "status", "why"),
    [
        ("a shift by one", "no barrier before the first copy, nor the compiler's", Status.MEMORY_HAZARD, "chips_race"),
        ("a broadcast from the first", "from the second", Status.DEADLOCK, "kernel.py:"),
        ("as many rows as the chip's number", "as many are waited for as were sent", Status.DEADLOCK, "kernel.py:"),
        ("all-to-all, straight", "an index past the last chip", Status.OUT_OF_BOUNDS, "kernel.py:"),
    ],
)
def test_what_is_wrong_between_eight_chips_is_refused_with_its_line(judged, name, wrong, status, why):
    said = judged(name, "v5e:2x4", wrong)
    assert said.status is status, said.reason
    assert why in said.reason


@pytest.mark.slow
def test_chips_that_send_only_after_their_own_wait_are_executed_one_after_the_other(judged):
    said = judged("sums over the chips before", "v6e:2x2")
    assert said.status is Status.PASS, said.reason
    said = judged("sums over the chips before", "v6e:2x2", "the first one waits, too")
    assert said.status is Status.DEADLOCK, said.reason
    assert "kernel.py:" in said.reason


def test_a_copy_to_another_chip_may_have_a_size_that_the_kernel_computes(judged):
    said = judged("as many rows as the chip's number", "v5e:2x2")
    assert said.status is Status.PASS, said.reason
    assert sum(link.bytes for link in said.timeline.links) >= (8 + 16 + 24 + 32) * 256 * 4


def test_a_collective_of_the_sparse_cores_has_a_wide_band(judged):
    said = judged("a kernel, then XLA's sum", "tpu7x:2x2x1")
    if jax.__version_info__ >= (0, 12):  # its compiler starts them in another way
        assert said.status is Status.SCHEDULE_UNKNOWN
        assert "SparseCore" in said.reason
        return
    assert said.status is Status.PASS, said.reason
    assert Unmodelled.EXCHANGES in said.timeline.not_modelled
    assert said.score.band.high_ms > 1.3 * said.score.latency_ms


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=[one.name for one in PROGRAMS])
def test_every_wrong_program_is_one_edit_away_from_a_right_one(program):
    right = program.source(8)
    for wrong in program.wrong:
        assert program.source(8, wrong) != right
