"""Lanes: as much at once as there are lanes, each with its own workers, and nothing left behind."""

import threading
from concurrent.futures import CancelledError, as_completed

import pytest

from ratchet.exam.judge.lanes import Lanes
from ratchet.values.status import Refusal, Status

SECONDS = 60
"""After which a test that waits for a thread has failed."""


class Kept:
    """Stands for ``Workers``."""

    made: list["Kept"]

    def __init__(self):
        self.closed = threading.Event()
        self.made.append(self)

    def close(self):
        self.closed.set()


@pytest.fixture
def kept():
    return type("Fresh", (Kept,), {"made": []})


def test_each_lane_has_workers_of_its_own_and_all_work_at_once(kept):
    together = threading.Barrier(3)

    def work(workers):
        together.wait(SECONDS)
        return workers

    with Lanes(3, kept) as lanes:
        running = [lanes.submit(work) for _ in range(6)]
        used = [future.result(SECONDS) for future in as_completed(running)]
    assert sorted(map(id, used)) == sorted(map(id, kept.made * 2))
    assert all(one.closed.is_set() for one in kept.made)


def test_a_result_comes_while_another_lane_still_works(kept):
    slow = threading.Event()
    with Lanes(2, kept) as lanes:
        lanes.submit(lambda _: slow.wait(SECONDS))
        quick = [lanes.submit(lambda _, n=n: n) for n in range(3)]
        assert [future.result(SECONDS) for future in quick] == [0, 1, 2]
        slow.set()


def test_what_work_raises_is_its_result_and_the_lane_goes_on(kept):
    def fails(_):
        raise ValueError("no such kernel")

    with Lanes(1, kept) as lanes:
        failed, after = lanes.submit(fails), lanes.submit(lambda workers: workers)
        with pytest.raises(ValueError, match="no such kernel"):
            failed.result(SECONDS)
        assert after.result(SECONDS) is kept.made[0]


def test_stopped_lanes_finish_what_is_under_way_and_begin_nothing_more(kept):
    begun, go_on = threading.Event(), threading.Event()

    def work(_):
        begun.set()
        return go_on.wait(SECONDS)

    with Lanes(1, kept) as lanes:
        under_way, waiting = lanes.submit(work), lanes.submit(work)
        assert begun.wait(SECONDS)
        lanes.stop()
        lanes.stop()
        go_on.set()
        assert under_way.result(SECONDS)
        with pytest.raises(CancelledError):
            waiting.result(SECONDS)
        with pytest.raises(RuntimeError, match="shutdown"):
            lanes.submit(work)


def test_closing_ends_what_is_under_way(kept):
    begun = threading.Event()

    def work(workers):
        begun.set()
        return workers.closed.wait(SECONDS)

    with Lanes(1, kept) as lanes:
        under_way = lanes.submit(work)
        assert begun.wait(SECONDS)
    assert under_way.done()
    assert under_way.result() is True


def test_lanes_that_cannot_all_start_leave_none(kept):
    def second_fails():
        if kept.made:
            raise Refusal(Status.NO_SPACE, "no space")
        return kept()

    with pytest.raises(Refusal, match="no space"):
        Lanes(2, second_fails)
    assert [one.closed.is_set() for one in kept.made] == [True]


def test_no_lane_is_refused(kept):
    with pytest.raises(ValueError, match="max_workers"):
        Lanes(0, kept)
