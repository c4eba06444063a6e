"""A child that is cancelled: it ends, and is not taken for one that can be asked."""

import threading
from pathlib import Path

import pytest

from ratchet.process.sandbox.child import Child, Limits

LIMITS = Limits(seconds=120, memory_bytes=4 << 30)
MODULE = "tests.process.sandbox.hostile"


@pytest.fixture
def child(tmp_path):
    with Child(MODULE, directory=tmp_path / "child") as started:
        yield started


def test_an_idle_child_that_is_cancelled_is_not_alive(child):
    assert child.ask(Path("processes x"), LIMITS).how == "answered"
    assert child.alive
    child.cancel()
    assert not child.alive
    ending = child.ask(Path("processes x"), LIMITS)
    assert (ending.how, ending.answer) == ("cancelled", "")


def test_a_request_under_way_that_is_cancelled_ends(child):
    assert child.ask(Path("processes x"), LIMITS).how == "answered"
    canceller = threading.Timer(0.1, child.cancel)
    canceller.start()
    ending = child.ask(Path("sleep x"), LIMITS)
    canceller.join()
    assert (ending.how, ending.answer) == ("cancelled", "")
    assert not child.alive
