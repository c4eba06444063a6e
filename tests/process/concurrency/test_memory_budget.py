"""Work that shares memory."""

import threading

import pytest

from ratchet.process.concurrency.memory_budget import Turns


class Worker:
    """Work in its own thread, until ``done`` is called."""

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


@pytest.mark.parametrize(
    ("held", "wanted"),
    [([4, 6], 5), pytest.param([1000], 1, id="one that needs more than there is has a turn alone")],
)
def test_what_fits_goes_on_side_by_side_and_what_does_not_waits(held, wanted):
    turns = Turns(10)
    others = [Worker(turns, needed) for needed in held]
    assert all(other.begun.wait(10) for other in others)
    last = Worker(turns, wanted)
    for other in others:
        assert not last.begun.wait(0.1)
        other.done()
    assert last.begun.wait(10)
    last.done()


def test_work_that_fails_gives_its_memory_back():
    turns = Turns(10)
    with pytest.raises(ValueError, match="no"), turns.taken(10):
        raise ValueError("no")
    with turns.taken(10):
        pass
