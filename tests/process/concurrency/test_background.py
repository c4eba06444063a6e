"""Work that is begun in another thread."""

from __future__ import annotations

import threading

import pytest

from ratchet.process.concurrency.background import Meanwhile


def test_what_was_begun_is_made_once_by_another_thread_and_can_be_taken_again() -> None:
    made: list[threading.Thread] = []
    begun, release = threading.Event(), threading.Event()

    def make() -> str:
        begun.set()
        assert release.wait(60)
        made.append(threading.current_thread())
        return "made"

    work: Meanwhile[str] = Meanwhile()
    work.begin({"a": make})
    work.begin({"a": make})
    assert made == [], "the caller does not wait"
    assert begun.wait(60)
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


@pytest.mark.parametrize("fails", [False, True])
def test_who_waits_makes_what_nobody_makes_yet(fails: bool) -> None:
    makers: dict[str, threading.Thread] = {}
    begun, release = threading.Event(), threading.Event()

    def first() -> str:
        begun.set()
        assert release.wait(60)
        return "first"

    def make(name: str) -> str:
        makers[name] = threading.current_thread()
        if name == "third":
            release.set()
        if fails:
            raise ValueError(name)
        return name

    work: Meanwhile[str] = Meanwhile()
    work.begin({"first": first} | {name: lambda name=name: make(name) for name in ("second", "third")})
    assert begun.wait(60)
    assert work.take("first") == "first", "its maker waits for the third"
    for name in ("second", "third"):
        if fails:
            with pytest.raises(ValueError, match=name):
                work.take(name)
        else:
            assert work.take(name) == name
    assert makers == dict.fromkeys(("second", "third"), threading.current_thread())
