"""Properties that are made once for each object."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ratchet.process.concurrency.once import once

WAIT = 60
"""Seconds in which what should happen has happened."""


def test_two_objects_are_made_beside_each_other() -> None:
    both = threading.Barrier(2, timeout=WAIT)

    class Thing:
        @once
        def made(self) -> int:
            return both.wait()  # a lock that they shared would keep one from getting here

    with ThreadPoolExecutor(2) as threads:
        assert {*threads.map(lambda thing: thing.made, (Thing(), Thing()))} == {0, 1}


def test_one_object_is_made_once_whoever_asks() -> None:
    begun, release = threading.Event(), threading.Event()
    count: list[int] = []

    class Thing:
        @once
        def made(self) -> int:
            count.append(1)
            begun.set()
            assert release.wait(WAIT)
            return len(count)

    thing = Thing()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(lambda: thing.made)
        assert begun.wait(WAIT)
        second = threads.submit(lambda: thing.made)
        release.set()
        assert (first.result(), second.result(), thing.made) == (1, 1, 1)


def test_what_fails_is_raised_and_tried_again() -> None:
    tries: list[int] = []

    class Thing:
        @once
        def made(self) -> str:
            """What it is."""
            tries.append(1)
            if len(tries) == 1:
                raise ValueError("not this time")
            return "made"

    thing = Thing()
    with pytest.raises(ValueError, match="not this time"):
        assert thing.made
    assert thing.made == "made"
    assert Thing.made.__doc__ == "What it is."
