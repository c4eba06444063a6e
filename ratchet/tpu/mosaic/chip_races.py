"""Whether chips disturb each other where one runs ahead of another, in any order that their semaphores allow. Pure.

What each chip does one after the other does not depend on how fast the others are, only on what they send; so the
events of one execution (``events``) are those of every one. For a copy into chip ``x`` two positions among the events
of ``x`` are looked for: how far ``x`` has to be before another chip can start the copy, all others running as far ahead
as they can; and the first wait of ``x`` that cannot end without this copy. Between the two it may arrive at any time:
whatever ``x`` does there with the same memory is a race. ``x``'s own copies are treated alike.

Nothing promises that two copies from one chip to another arrive in the order in which they are started. Where there is
a race only if they do not, its text says so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ratchet.tpu.mlir.signature import Kernel
from ratchet.tpu.mosaic.events import ROWS, Did, Event
from ratchet.tpu.mosaic.findings import Finding, Kind

Events = Sequence[Sequence[Event]]
"""Of every chip, in the order of its program."""

_COPIES = frozenset({Did.SEND, Did.COPY_READ, Did.COPY_WRITE})
_WRITES = frozenset({Did.SEND, Did.WRITE, Did.COPY_WRITE})


@dataclass(frozen=True, kw_only=True)
class Race:
    """Two events that may disturb each other."""

    chip: int
    """Whose memory it is."""
    by: int
    event: Event | None
    """What chip ``by`` does there; None where ``chip`` may not be in the kernel yet."""
    sender: int
    copy: Event
    """What may be in flight meanwhile."""
    after: Event | None = None
    """What ``chip`` has done when the copy may begin."""
    until: Event | None = None
    """The first wait of ``chip`` that needs the copy; None for none."""


def findings(kernel: Kernel, events: Events | None) -> list[Finding]:
    """The first thing that goes wrong in some order; ``events`` are None where there was no room for all."""
    if events is None:
        message = f"kernel {kernel.name}: a chip does more than {ROWS} things that others may see"
        return [Finding(kind=Kind.TOO_MANY_EVENTS, message=message)]
    operations = list(kernel.module.operations())

    def finding(kind: Kind, event: Event, message: str) -> Finding:
        op = operations[event.operation]
        return Finding(
            kind=kind, operation=op.name, grid_step=kernel.coordinates(event.step), location=op.location,
            message=f"kernel {kernel.name}: {message}",
        )  # fmt: skip

    if stuck := deadlock(events):
        chip, event = stuck
        return [finding(Kind.WAIT_WITHOUT_START, event, f"chip {chip} waits here for ever")]
    race = next(races(events), None)
    if race is None:
        return []
    certain = next(races(events, in_order=True), None)
    race = certain or race

    def at(event: Event) -> str:
        op = operations[event.operation]
        return op.location or op.name

    what = f"a copy that chip {race.sender} starts at {at(race.copy)}"
    if race.event is None:
        return [finding(Kind.CHIPS_RACE, race.copy, f"{what} may arrive before chip {race.chip} is in the kernel")]
    does = "reads" if race.event.did in (Did.READ, Did.COPY_READ) else "writes"
    may = "still read" if race.copy.did is Did.COPY_READ else "write at the same time"
    begins = "" if race.after is None else f"it may begin once chip {race.chip} is past {at(race.after)}, and "
    ends = "no wait needs it" if race.until is None else f"the first wait that needs it is at {at(race.until)}"
    message = f"chip {race.by} {does} here what {what} may {may}: {begins}{ends}"
    if certain is None:
        message += (
            f". So it is where a later copy of chip {race.sender}'s arrives before it, on the same semaphore: nothing "
            "promises their order; wanted a semaphore for each that is in flight"
        )
    return [finding(Kind.CHIPS_RACE, race.event, message)]


@dataclass(frozen=True, kw_only=True)
class _Access:
    """An event that touches memory of a chip, and when: the chip's next own event is ``first`` to ``last``."""

    by: int
    event: Event
    first: int
    last: int


def deadlock(events: Events) -> tuple[int, Event] | None:
    """The first chip that waits for ever, in every order, and for what."""
    run = _Run(events, stopped=None)
    run.go()
    for chip, own in enumerate(events):
        if run.position[chip] < len(own):
            return chip, own[run.position[chip]]
    return None


def races(events: Events, *, in_order: bool = False) -> Iterator[Race]:
    """What may disturb each other, chip by chip. The events have to have no deadlock.

    ``in_order``: if copies from one chip to another on one semaphore arrive in the order in which they are started.
    """
    for chip in range(len(events)):
        yield from _races_on(events, chip, in_order)


def _races_on(events: Events, chip: int, in_order: bool) -> Iterator[Race]:
    own, run = events[chip], _Run(events, stopped=chip)
    arrived: list[Counter[int]] = []
    sends: list[tuple[int, int, Event]] = []
    for limit in range(len(own) + 1):
        run.limit = limit
        run.go()
        waits_next = limit < len(own) and own[limit].did is Did.WAIT
        arrived.append(Counter(run.arrived[chip]) if waits_next else Counter())
        sends += [(limit, sender, copy) for sender, copy in run.started]
    waits = _waits(own)
    accesses: dict[int, list[_Access]] = defaultdict(list)
    for number, (first, sender, copy) in enumerate(sends):
        if first == 0:
            yield Race(chip=chip, by=chip, event=None, sender=sender, copy=copy)
        behind = [
            (start, other.amount)
            for start, by, other in sends[number + 1 :]
            if in_order and (by, other.semaphore) == (sender, copy.semaphore)
        ]
        last = _guaranteed(copy, first, waits[copy.semaphore], arrived, behind)
        accesses[copy.buffer].append(_Access(by=sender, event=copy, first=first, last=last))
    for place, event in enumerate(own):
        if event.did in (Did.READ, Did.WRITE):
            accesses[event.buffer].append(_Access(by=chip, event=event, first=place, last=place))
        elif event.did in (Did.COPY_READ, Did.COPY_WRITE):
            last = _guaranteed(event, place, waits[event.semaphore], arrived)
            accesses[event.buffer].append(_Access(by=chip, event=event, first=place, last=last))
    for touching in accesses.values():
        yield from _overlapping(chip, own, touching)


def _waits(own: Sequence[Event]) -> dict[int, list[tuple[int, int]]]:
    """For each semaphore the positions of its waits, and how much all up to each take."""
    waits: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for place, event in enumerate(own):
        if event.did is Did.WAIT:
            before = waits[event.semaphore][-1][1] if waits[event.semaphore] else 0
            waits[event.semaphore].append((place, before + event.amount))
    return waits


def _guaranteed(
    copy: Event,
    first: int,
    waits: Sequence[tuple[int, int]],
    arrived: Sequence[Counter[int]],
    behind: Sequence[tuple[int, int]] = (),
) -> int:
    """The position of the first wait that cannot end before this copy has arrived, or that of the kernel's end.

    ``behind``: where others may begin that arrive after it, and how much they signal.
    """
    for place, taken in waits:
        later = sum(amount for start, amount in behind if start <= place)
        if place >= first and arrived[place][copy.semaphore] - copy.amount - later < taken:
            return place
    return len(arrived)


def _overlapping(chip: int, own: Sequence[Event], accesses: Sequence[_Access]) -> Iterator[Race]:
    """Pairs that may touch the same elements at the same time, one of them by a copy and one of them writing."""
    low, high = (np.array([getattr(access.event, side) for access in accesses]) for side in ("low", "high"))
    first, last = (np.array([getattr(access, side) for access in accesses]) for side in ("first", "last"))
    writes = np.array([access.event.did in _WRITES for access in accesses])
    is_copy = np.array([access.event.did in _COPIES for access in accesses])
    for number in np.flatnonzero(is_copy).tolist():
        one = accesses[number]
        both = (first <= one.last) & (one.first <= last) & (writes | writes[number])
        both &= np.all(np.maximum(low, low[number]) < np.minimum(high, high[number]), axis=1)  # some have no elements
        both &= ~is_copy | (np.arange(len(accesses)) > number)
        for other in np.flatnonzero(both).tolist():
            yield Race(
                chip=chip,
                by=accesses[other].by,
                event=accesses[other].event,
                sender=one.by,
                copy=one.event,
                after=own[one.first - 1] if one.by != chip else None,
                until=own[one.last] if one.last < len(own) else None,
            )


class _Run:
    """All chips run as far as they can, ``stopped`` no further than before its event ``limit``."""

    def __init__(self, events: Events, *, stopped: int | None) -> None:
        self._events, self._stopped = events, stopped
        self.limit = 0
        self.position = [0] * len(events)
        self.arrived: list[Counter[int]] = [Counter() for _ in events]
        self._taken: list[Counter[int]] = [Counter() for _ in events]
        self._reached, self._entered = [0] * len(events), [0] * len(events)
        self.started: list[tuple[int, Event]] = []
        """Copies into ``stopped`` that the last call of ``go`` started, and by which chip."""

    def go(self) -> None:
        """Until nothing moves."""
        self.started = []
        moved = True
        while moved:
            moved = any([self._advance(chip) for chip in range(len(self._events))])

    def _advance(self, chip: int) -> bool:
        own, before = self._events[chip], self.position[chip]
        end = self.limit if chip == self._stopped else len(own)
        while self.position[chip] < end and self._step(chip, own[self.position[chip]]):
            self.position[chip] += 1
        return self.position[chip] > before

    def _step(self, chip: int, event: Event) -> bool:
        """Do the chip's next event, if it can be done."""
        if event.did is Did.WAIT:
            if self.arrived[chip][event.semaphore] - self._taken[chip][event.semaphore] < event.amount:
                return False
            self._taken[chip][event.semaphore] += event.amount
        elif event.did is Did.ENTER:
            self._reached[chip] = self._entered[chip] + 1
            if any(own and there < self._reached[chip] for own, there in zip(self._events, self._reached, strict=True)):
                return False
            self._entered[chip] += 1
        elif event.did is Did.SEND:
            self.arrived[event.device][event.semaphore] += event.amount
            if event.device == self._stopped:
                self.started.append((chip, event))
        elif event.did is Did.SIGNAL:
            self.arrived[event.device][event.semaphore] += event.amount
        return True
