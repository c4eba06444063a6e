"""Who waits for whom, in words."""

from __future__ import annotations

from ratchet.tpu.machine.deadlock import Signals, Stuck, refusal
from ratchet.values.status import Status

FLAG = 7


def stuck(number: int, waiting: str = "at the wait") -> Stuck:
    return Stuck(number=number, flag=FLAG, waiting=waiting)


def test_what_is_the_same_of_several_is_said_once() -> None:
    said = refusal("chip", {0, 1, 2, 3}, [stuck(number) for number in range(3)], {3}, Signals())
    assert said.status is Status.DEADLOCK
    assert "chips 0, 1 and 2 for a signal that is never sent; chip 3 reached the end" in said.message
    assert said.message.count("at the wait") == 1


def test_the_silent_are_named_and_what_was_signalled() -> None:
    signals = Signals()
    signals.senders[FLAG][0].add(1)
    said = refusal("core", {0, 1, 2}, [stuck(0)], {1, 2}, signals)
    assert "core 0 for core 2;" in said.message
    assert "(signalled so far at core 0 by core 1)" in said.message
    signals.senders[FLAG][0].add(2)
    assert "core 0 for more than cores 1 and 2 sent" in refusal("core", {0, 1, 2}, [stuck(0)], set(), signals).message


def test_a_copy_that_only_others_start_is_named() -> None:
    signals = Signals()
    signals.own_copies[FLAG].add(1)
    said = refusal("chip", {0, 1}, [stuck(0)], {1}, signals)
    assert "chip 0 for a copy of its own that it never starts (chip 1 did)" in said.message


def test_a_message_names_a_few_places() -> None:
    said = refusal("chip", set(range(8)), [stuck(number, f"at {number}") for number in range(8)], set(), Signals())
    assert "Chip 3 at 3." in said.message
    assert "Chip 4" not in said.message
    assert "So do others at 4 more places." in said.message
