"""Work that shares memory."""

import threading

import pytest

from ratchet.judge.turns import Turns


class Worker:
    """Work in a thread of its own, which ends when it is told to."""

    def __init__(self, turns, needed):
        self.begun, self.end = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run, args=(turns, needed), daemon=True)
        self.thread.start()

    def run(self, turns, needed):
        with turns.taken(needed):
            self.begun.set()
            self.end.wait()

    def done(self):
        self.end.set()
        self.thread.join()


def test_what_fits_goes_on_side_by_side_and_what_does_not_waits():
    turns = Turns(10)
    one, other = Worker(turns, 6), Worker(turns, 4)
    assert one.begun.wait(10)
    assert other.begun.wait(10)
    third = Worker(turns, 5)
    assert not third.begun.wait(0.1)
    other.done()
    assert not third.begun.wait(0.1)
    one.done()
    assert third.begun.wait(10)
    third.done()


def test_what_is_larger_than_all_has_a_turn_alone():
    turns = Turns(10)
    large = Worker(turns, 1000)
    assert large.begun.wait(10)
    small = Worker(turns, 1)
    assert not small.begun.wait(0.1)
    large.done()
    assert small.begun.wait(10)
    small.done()


def test_work_that_fails_gives_its_memory_back():
    turns = Turns(10)
    with pytest.raises(ValueError, match="no"), turns.taken(10):
        raise ValueError("no")
    with turns.taken(10):
        pass
