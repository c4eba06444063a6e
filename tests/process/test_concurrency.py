"""Work side by side: what runs beside what, how often, and what becomes of failures."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ratchet.process.concurrency import BackgroundJobs, once

WAIT = 60
"""Seconds in which what should happen has happened."""


class Held:
    """A job that says that it has begun, and ends once it is released."""

    def __init__(self) -> None:
        self.begun, self.release = threading.Event(), threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self) -> str:
        self.threads.append(threading.current_thread())
        self.begun.set()
        assert self.release.wait(WAIT)
        return "held"


def test_a_job_runs_once_in_another_thread_and_its_result_can_be_taken_again() -> None:
    jobs, held = BackgroundJobs[str](), Held()
    jobs.begin({"a": held})
    jobs.begin({"a": held})
    assert held.begun.wait(WAIT), "the caller does not wait"
    held.release.set()
    assert [jobs.take("a"), jobs.take("a")] == ["held", "held"]
    assert held.threads != [threading.current_thread()]
    assert len(held.threads) == 1
    assert jobs.take("what was not begun") is None


def test_what_is_forgotten_is_not_run() -> None:
    jobs, held, ran = BackgroundJobs[str](), Held(), []
    jobs.begin({"first": held, "second": lambda: ran.append("second") or "second"})
    assert held.begun.wait(WAIT)
    jobs.forget()
    held.release.set()
    assert jobs.take("second") is None
    jobs.begin({"second": lambda: "another"})
    assert jobs.take("second") == "another"
    assert ran == []


@pytest.mark.parametrize("fails", [False, True])
def test_who_waits_runs_what_has_not_begun_and_failures_are_raised_where_they_are_taken(fails: bool) -> None:
    ran: dict[str, threading.Thread] = {}
    jobs, held = BackgroundJobs[str](), Held()

    def job(name: str) -> str:
        ran[name] = threading.current_thread()
        if name == "third":
            held.release.set()
        if fails:
            raise ValueError(name)
        return name

    jobs.begin({"first": held} | {name: lambda name=name: job(name) for name in ("second", "third")})
    assert held.begun.wait(WAIT)
    assert jobs.take("first") == "held", "it waits for the third"
    for name in ("second", "third"):
        if fails:
            with pytest.raises(ValueError, match=name):
                jobs.take(name)
        else:
            assert jobs.take(name) == name
    assert ran == dict.fromkeys(("second", "third"), threading.current_thread())


def test_a_property_is_computed_once_whoever_asks_and_beside_that_of_another_object() -> None:
    both = threading.Barrier(2, timeout=WAIT)
    computed: list[object] = []

    class Thing:
        @once
        def value(self) -> int:
            """What it is."""
            computed.append(self)
            return both.wait()  # a lock that they shared would keep one from getting here

    things = Thing(), Thing()
    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(lambda thing: thing.value, things * 2)]
    assert sorted(found) == [0, 0, 1, 1]
    assert found[:2] == found[2:]
    assert len(computed) == 2
    assert Thing.value.__doc__ == "What it is."


def test_a_property_that_failed_is_computed_again() -> None:
    tries: list[int] = []

    class Thing:
        @once
        def value(self) -> str:
            tries.append(1)
            if len(tries) == 1:
                raise ValueError("not this time")
            return "computed"

    thing = Thing()
    with pytest.raises(ValueError, match="not this time"):
        assert thing.value
    assert thing.value == "computed"
