"""Chips of which one is faster: what no semaphore keeps apart is a race, in any order, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import pytest

from ratchet.tpu.mosaic import chip_races, events
from ratchet.tpu.mosaic.events import Did, Event
from ratchet.tpu.mosaic.memory import RANK

ROOM, SENT, ARRIVED, BARRIER = 1, 2, 3, 4
CHIPS = 4


def slot(number: int) -> dict[str, object]:
    """One of two slots of the buffer that chips send into."""
    return {"buffer": 1, "low": (number, *(0,) * (RANK - 1)), "high": (number + 1, *(1,) * (RANK - 1))}


def signal(device: int, semaphore: int, amount: int = 1) -> Event:
    return Event(did=Did.SIGNAL, device=device, semaphore=semaphore, amount=amount)


def wait(semaphore: int, amount: int = 1) -> Event:
    return Event(did=Did.WAIT, semaphore=semaphore, amount=amount)


def read(number: int) -> Event:
    return Event(did=Did.READ, **slot(number))  # type: ignore[arg-type]


def write(number: int) -> Event:
    return Event(did=Did.WRITE, **slot(number))  # type: ignore[arg-type]


def send(chip: int, here: int, device: int, there: int, *, arrived: int = ARRIVED) -> list[Event]:
    """From a slot of this chip into one of another, 8 bytes."""
    return [
        Event(did=Did.COPY_READ, semaphore=SENT, amount=8, **slot(here)),  # type: ignore[arg-type]
        signal(chip, SENT, 8),
        Event(did=Did.SEND, device=device, semaphore=arrived, amount=8, **slot(there)),  # type: ignore[arg-type]
    ]


ENTER = Event(did=Did.ENTER)


def ring(steps: int, *, room: str) -> list[list[Event]]:
    """Every chip passes on what it got, through two slots: the next one gives ``room`` late, early or never."""
    chips = []
    for me in range(CHIPS):
        left, right = (me - 1) % CHIPS, (me + 1) % CHIPS
        own = [ENTER, write(0)]
        for step in range(steps):
            here, there = step % 2, (step + 1) % 2
            gives = [signal(left, ROOM)] if step < steps - 1 else []
            if step and room != "never":
                own.append(wait(ROOM))
            own += send(me, here, right, there)
            own += gives if room == "early" else []
            own += [wait(SENT, 8), wait(ARRIVED, 8), read(there)]
            own += gives if room == "late" else []
        chips.append(own)
    return chips


@pytest.mark.parametrize(("steps", "room", "races"), [
    (3, "late", False), (8, "late", False), (3, "never", True), (3, "early", True), (1, "never", False),
])  # fmt: skip
def test_a_slot_is_not_sent_into_before_it_is_free(steps: int, room: str, races: bool) -> None:
    chips = ring(steps, room=room)
    assert chip_races.deadlock(chips) is None
    found = list(chip_races.races(chips))
    assert bool(found) is races
    assert all(race.sender == (race.chip - 1) % CHIPS or race.copy.did is Did.COPY_READ for race in found)


def hops(*, early: bool, semaphores: int) -> list[list[Event]]:
    """Every chip passes on what came last, each time to a place of its own; ``early``: as soon as its own has left."""
    chips = []
    for me in range(CHIPS):
        own, waits = [ENTER, write(0)], []
        for hop in range(CHIPS - 1):
            arrived = 10 + hop % semaphores
            own += [*send(me, hop, (me + 1) % CHIPS, hop + 1, arrived=arrived), wait(SENT, 8)]
            waits += [wait(arrived, 8)]
            own += [] if early else [waits.pop()]
        chips.append(own + waits)
    return chips


@pytest.mark.parametrize(("early", "semaphores", "races", "in_order"), [
    (False, 3, False, False), (False, 2, True, False), (False, 1, True, False),
    (True, 3, True, True), (True, 1, True, True),
])  # fmt: skip
def test_a_race_of_two_copies_on_one_semaphore_depends_on_their_order(
    early: bool, semaphores: int, races: bool, in_order: bool
) -> None:
    chips = hops(early=early, semaphores=semaphores)
    found = list(chip_races.races(chips))
    assert bool(found) is races
    assert bool(list(chip_races.races(chips, in_order=True))) is in_order
    if not early and semaphores == 1:
        first = found[0]
        assert (first.after, first.until) == (ENTER, wait(10, 8))
        assert (first.by, first.chip, first.sender) == (0, 0, CHIPS - 1)


def exchange(*between: Event, amount: int = 16) -> list[list[Event]]:
    """Chips 1 and 2 each send into a slot of chip 0, which waits for both and reads them."""
    first = [ENTER, *between, wait(ARRIVED, amount), read(0), read(1)]
    others = [[ENTER, *send(chip, 0, 0, chip - 1), wait(SENT, 8)] for chip in (1, 2)]
    return [first, *others]


def test_one_semaphore_for_two_copies_is_waited_for_as_a_whole() -> None:
    assert list(chip_races.races(exchange())) == []
    halves = [ENTER, wait(ARRIVED, 8), read(0), wait(ARRIVED, 8), read(1)]
    (race,) = chip_races.races([halves, *exchange()[1:]])  # the first to arrive may be the one for slot 1
    assert (race.chip, race.sender, race.event) == (0, 1, read(0))


@pytest.mark.parametrize("event", [read(0), write(1)])
def test_what_may_arrive_at_once_is_left_alone(event: Event) -> None:
    (race,) = chip_races.races(exchange(event))
    assert (race.chip, race.event) == (0, event)


@pytest.mark.parametrize(("size", "races"), [(0, 0), (1, 1)])
def test_what_has_no_elements_disturbs_nothing(size: int, races: int) -> None:
    """Such as a copy of a page of which no row is needed, into the middle of what another brings."""
    rest = (0,) * (RANK - 1), (1,) * (RANK - 1)
    inside = Event(did=Did.WRITE, buffer=1, low=(1, *rest[0]), high=(1 + size, *rest[1]))
    sent = Event(did=Did.SEND, device=0, semaphore=ARRIVED, amount=8, buffer=1, low=(0, *rest[0]), high=(3, *rest[1]))
    begins = [ENTER, signal(1, ROOM), inside, wait(ARRIVED, 8)]
    assert len(list(chip_races.races([begins, [ENTER, wait(ROOM), sent]]))) == races


def test_two_chips_do_not_send_into_one_slot() -> None:
    chips = exchange()
    chips[2] = [ENTER, *send(2, 0, 0, 0), wait(SENT, 8)]
    assert any(race.event is not None and race.event.did is Did.SEND for race in chip_races.races(chips))


@pytest.mark.parametrize(("times", "races"), [(1, False), (2, True)])
def test_a_barrier_of_neighbours_that_is_used_twice_keeps_nobody_apart(times: int, races: bool) -> None:
    """Two signals are waited for; where the neighbour at one side is faster, both are its own."""
    chips = []
    for me in range(CHIPS):
        own = [ENTER]
        for time in range(times):
            own += [read(1)] if me == 1 and time == 0 else []
            own += [*(signal((me + side) % CHIPS, BARRIER) for side in (1, -1)), wait(BARRIER, 2)]
            own += [*send(0, 0, 1, 1), wait(SENT, 8)] if me == 0 and time == 0 else []
            own += [wait(ARRIVED, 8)] if me == 1 and time == 0 else []
        chips.append(own)
    assert bool(list(chip_races.races(chips))) is races


def test_chips_that_wait_for_each_other_are_stuck() -> None:
    crossed = [[ENTER, wait(ROOM), signal(1, ROOM)], [ENTER, wait(ROOM), signal(0, ROOM)]]
    assert chip_races.deadlock(crossed) == (0, wait(ROOM))
    assert chip_races.deadlock([crossed[0], [ENTER, signal(0, ROOM), wait(ROOM)]]) is None


def test_without_a_barrier_a_copy_comes_before_its_target_is_in_the_kernel() -> None:
    chips = [own[1:] for own in exchange()]
    assert {race.event for race in chip_races.races(chips)} == {None}


# --- the log -------------------------------------------------------------------------------------


def words(rows: Sequence[Event]) -> jnp.ndarray:
    """A chip's log with these events."""
    log, count = jnp.zeros(events.LOG.shape, jnp.int32), jnp.int32(0)
    for event in rows:
        box = (event.low, tuple(b - a for a, b in zip(event.low, event.high, strict=True)))
        row = jnp.array(events.row(
            event.did, event.operation, event.step, semaphore=event.semaphore, amount=event.amount,
            device=event.device, buffer=event.buffer, box=box,
        ))  # fmt: skip
        log, count = events.appended(log, count, row, jnp.asarray(True))
        log, count = events.appended(log, count, row + 1, jnp.asarray(False))
    return jnp.concatenate([count.reshape(1), log.reshape(-1)])


def test_logs_of_one_kernel_that_runs_twice_follow_each_other() -> None:
    first, second = [wait(ROOM), read(1)], [signal(1, SENT, 3)]
    now = jnp.concatenate([words(first), words(second)])
    once = events.merged(jnp.full(now.shape, -1), now, 2)
    assert events.read(np.asarray(once), 2) == [first, second]
    assert events.read(np.asarray(events.merged(once, now, 2)), 2) == [first * 2, second * 2]


def test_a_log_without_room_says_so() -> None:
    full = np.zeros(events.WORDS, np.int32)
    full[0] = events.ROWS + 1
    assert events.read(full, 1) is None
