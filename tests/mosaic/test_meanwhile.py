"""Work that is begun in another thread."""

from __future__ import annotations

import threading

import pytest

from ratchet.mosaic.meanwhile import Meanwhile


def test_what_was_begun_is_made_once_by_another_thread_and_can_be_taken_again() -> None:
    made: list[threading.Thread] = []
    release = threading.Event()

    def make() -> str:
        assert release.wait(60)
        made.append(threading.current_thread())
        return "made"

    work: Meanwhile[str] = Meanwhile()
    work.begin({"a": make})
    work.begin({"a": make})
    assert made == [], "the caller does not wait"
    release.set()
    assert [work.take("a"), work.take("a")] == ["made", "made"]
    assert len(made) == 1
    assert made[0] is not threading.current_thread()


def test_what_was_not_begun_is_none() -> None:
    assert Meanwhile[str]().take("a") is None


def test_what_making_raises_is_raised_where_it_is_used() -> None:
    def fail() -> str:
        raise ValueError("not this one")

    work: Meanwhile[str] = Meanwhile()
    work.begin({"bad": fail, "good": lambda: "made"})
    with pytest.raises(ValueError, match="not this one"):
        work.take("bad")
    assert work.take("good") == "made"


def test_what_is_forgotten_is_not_made() -> None:
    made: list[str] = []
    begun, release = threading.Event(), threading.Event()

    def first() -> str:
        begun.set()
        assert release.wait(60)
        return "first"

    work: Meanwhile[str] = Meanwhile()
    work.begin({"first": first, "second": lambda: made.append("second") or "second"})
    assert begun.wait(60)
    work.forget()
    release.set()
    assert work.take("second") is None
    work.begin({"second": lambda: "another"})
    assert work.take("second") == "another"
    assert made == []
