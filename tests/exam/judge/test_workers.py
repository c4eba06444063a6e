"""The judge's workers, and slots of them: as much at once as there are slots, and nothing left behind."""

import copy
import threading
from concurrent.futures import CancelledError, as_completed

import pytest

from ratchet.exam.candidate import tracer
from ratchet.exam.candidate.tracer import TraceRequest
from ratchet.exam.judge.workers import Workers, WorkerSlots
from ratchet.tpu.chips import V5E
from ratchet.values.status import Refusal, Status
from tests.kernels import ATTENTION
from tests.refusals import refused

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


class Held:
    """Work that says that it has begun, and ends once it is released or its workers are closed."""

    def __init__(self):
        self.begun, self.release = threading.Event(), threading.Event()

    def __call__(self, workers):
        self.begun.set()
        while not (self.release.wait(0.01) or workers.closed.is_set()):
            pass
        return workers


def test_each_slot_has_workers_of_its_own_and_all_work_at_once(kept):
    together = threading.Barrier(3)

    def work(workers):
        together.wait(SECONDS)
        return workers

    with WorkerSlots(3, kept) as slots:
        running = [slots.submit(work) for _ in range(6)]
        used = [future.result(SECONDS) for future in as_completed(running)]
    assert sorted(map(id, used)) == sorted(map(id, kept.made * 2))
    assert all(one.closed.is_set() for one in kept.made)


def test_what_work_raises_is_its_result_and_other_work_goes_on_beside_what_is_slow(kept):
    def fails(_):
        raise ValueError("no such kernel")

    slow = Held()
    with WorkerSlots(2, kept) as slots:
        slots.submit(slow)
        assert slow.begun.wait(SECONDS)
        failed, after = slots.submit(fails), [slots.submit(lambda _, n=n: n) for n in range(3)]
        with pytest.raises(ValueError, match="no such kernel"):
            failed.result(SECONDS)
        assert [future.result(SECONDS) for future in after] == [0, 1, 2]
        slow.release.set()


def test_stopped_slots_finish_what_is_under_way_and_begin_nothing_more(kept):
    work = Held()
    with WorkerSlots(1, kept) as slots:
        under_way, waiting = slots.submit(work), slots.submit(work)
        assert work.begun.wait(SECONDS)
        slots.stop()
        slots.stop()
        work.release.set()
        assert under_way.result(SECONDS) is kept.made[0]
        with pytest.raises(CancelledError):
            waiting.result(SECONDS)
        with pytest.raises(RuntimeError, match="shutdown"):
            slots.submit(work)


def test_closing_ends_what_is_under_way(kept):
    work = Held()
    with WorkerSlots(1, kept) as slots:
        under_way = slots.submit(work)
        assert work.begun.wait(SECONDS)
    assert under_way.done()
    assert under_way.result().closed.is_set()


def test_slots_that_cannot_all_start_leave_none(kept):
    def second_fails():
        if kept.made:
            raise Refusal(Status.NO_SPACE, "no space")
        return kept()

    with pytest.raises(Refusal, match="no space"):
        WorkerSlots(2, second_fails)
    assert [one.closed.is_set() for one in kept.made] == [True]
    with pytest.raises(ValueError, match="max_workers"):
        WorkerSlots(0, kept)


def test_closed_workers_start_no_child():
    workers = Workers(V5E, compiles=False, one_file=True)
    workers.close()
    with refused(Status.INTERRUPTED):
        _ = workers.values
    workers.close()
    assert not workers.root.exists()


@pytest.fixture
def own(workers):
    """Workers that start their candidate children as the others do."""
    lent = [copy.copy(process) for process in (workers._authors, workers._warm)]
    for process in lent:
        process.close = process.cancel = lambda: None
    with Workers(V5E, compiles=False, one_file=True, waiting=tuple(lent)) as made:
        made.one_file = False
        yield made


def wanted(**changed):
    return TraceRequest(**{"source": ATTENTION.encode(), "name": "kernel.py", **changed})


def test_a_file_that_is_traced_already_is_not_traced_again(own):
    own.begin(wanted())
    begun = own._begun
    tracing = own.tracing(wanted())
    assert tracing is begun
    assert tracer.result(tracing).kernel_name
    assert own.tracing(wanted()).child is not begun.child, "it has run a kernel file"


@pytest.mark.parametrize("changed", [{"source": b"pass"}, {"name": "other.py"}, {"platform": "cpu"}])
def test_what_is_wanted_otherwise_is_traced_by_another_child(own, changed):
    own.begin(wanted())
    begun = own._begun
    tracing = own.tracing(wanted(**changed))
    assert tracing.request == wanted(**changed)
    assert tracing.child is not begun.child
    assert not begun.child.alive
    tracing.child.close()


def test_what_nobody_asks_for_ends_with_the_workers(own):
    own.begin(wanted())
    begun = own._begun
    own.close()
    assert not begun.child.alive


def test_a_file_that_is_no_kernel_is_refused_where_it_is_waited_for(own):
    own.begin(wanted(source=b"def kernel_fn(:\n"))
    with refused(Status.SYNTAX_ERROR):
        tracer.result(own.tracing(wanted(source=b"def kernel_fn(:\n")))
