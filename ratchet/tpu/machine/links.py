"""What machines of a slice have between them: the links, and the order in which they move.

Each link carries one direction and serves its messages first in, first out. A message to a chip that is no neighbour
goes along the first axis, then along the second, and passes through: the second link begins one hop after the first.

Machines run together, each in a thread, of which exactly one moves at any time. A machine goes on by itself until what
it does next could depend on, or matter to, another one. Then the machine with the earliest next event moves. Nothing
that one machine does can reach another sooner than one hop later (a shorter time between two cores of a chip), so a
machine may run ahead of the others by that much where it only looks at what has come.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from ratchet.tpu.chips import Ici
from ratchet.tpu.machine.dma import GRANULE_BYTES, Ends
from ratchet.values import LinkUse

KEPT = 20_000
"""Messages kept one by one at each end of a run, over all links; the others are counted only."""


class Message(NamedTuple):
    """One copy between two chips, or one signal of a semaphore (0 bytes). Times in cycles."""

    source: int
    target: int
    path: tuple[int, ...]
    size_bytes: int
    issued: int
    begin: float
    """When the first link took it."""
    left: float
    """When its last byte left the source: the source's semaphore moves."""
    arrival: float
    """When its last byte has arrived: the target's semaphore moves."""


class Links:
    """All links of a slice during one run. Messages have to be sent in the order of their time."""

    def __init__(self, ici: Ici, clock_hz: float) -> None:
        self._ici = ici
        self._cycles_per_byte = clock_hz / ici.link_bytes_per_s
        self.hop_cycles = ici.hop_s * clock_hz
        self._free = dict.fromkeys(ici.links(), 0.0)
        self._bytes = dict.fromkeys(self._free, 0)
        self._messages = dict.fromkeys(self._free, 0)
        self.log = Ends(KEPT)

    def send(self, now: int, source: int, target: int, granules: int) -> Message:
        """Puts ``granules`` x 32 B on their way to another chip; 0 for a signal, which takes no bandwidth."""
        path = self._ici.path(source, target)
        busy = granules * GRANULE_BYTES * self._cycles_per_byte
        begin = left = at = 0.0
        for number, link in enumerate(itertools.pairwise(path)):
            at = max(at if number else now, self._free[link] if granules else 0.0)
            if granules:
                self._free[link] = at + busy
                self._bytes[link] += granules * GRANULE_BYTES
            self._messages[link] += 1
            if not number:
                begin, left = at, at + busy
            at += self.hop_cycles
        message = Message(source, target, path, granules * GRANULE_BYTES, now, begin, left, at + busy)
        self.log.add(message)
        return message

    def use(self) -> tuple[LinkUse, ...]:
        """What went over each link."""
        return tuple(
            LinkUse(
                source_chip=link[0],
                target_chip=link[1],
                bytes=size,
                messages=self._messages[link],
                busy_cycles=round(size * self._cycles_per_byte),
            )
            for link, size in self._bytes.items()
        )


class Abandoned(BaseException):
    """Ends a machine's thread because the run as a whole has failed."""


class Interleaving:
    """The order in which machines move."""

    def __init__(self, count: int, ahead: Callable[[int, int], float], stuck: Callable[[], Exception]) -> None:
        """``stuck`` makes the error for the case that no machine can ever move again.

        Args:
            count: of machines.
            ahead: by how many cycles one machine may run ahead of another: no message between the two takes less.
            stuck: see above.
        """
        self._ahead = [[ahead(one, other) for other in range(count)] for one in range(count)]
        self._stuck = stuck
        self._next: list[Callable[[], float]] = [lambda: 0.0] * count
        self._batons = [threading.Semaphore(0) for _ in range(count)]
        self._ended = [False] * count
        self._failure: BaseException | None = None

    def run(self, works: Sequence[Callable[[], None]]) -> None:
        """Runs every work in a thread of its own, to the end of all. Raises what the first one to fail raised."""
        threads = [
            threading.Thread(target=self._run_one, args=(number, work), daemon=True)
            for number, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        self._batons[0].release()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _run_one(self, me: int, work: Callable[[], None]) -> None:
        try:
            self._await_baton(me)
            work()
            self._ended[me] = True
            self._next[me] = lambda: inf
            other, time, _ = self._earliest(me)
            if time < inf:
                self._batons[other].release()
            elif not all(self._ended):
                raise self._stuck()
        except Abandoned:
            pass
        except BaseException as error:
            self._failure = error
            for baton in self._batons:
                baton.release()

    def before(self, me: int, time: float) -> None:
        """Returns once no other machine can do anything before ``time``."""
        self._pass_on(me, lambda: time, ahead=False)

    def seen(self, me: int, time: float) -> None:
        """Returns once everything is known that reaches this machine up to ``time``."""
        self._pass_on(me, lambda: time, ahead=True)

    def until(self, me: int, event: Callable[[], float]) -> None:
        """Returns once ``event`` is due and nothing can make it due earlier.

        Args:
            me: number of the machine.
            event: its cycle by what is known now; infinite where others have to act first.

        Raises:
            Exception: what ``stuck`` makes, if that never happens.
        """
        self._pass_on(me, event, ahead=True)

    def _pass_on(self, me: int, event: Callable[[], float], *, ahead: bool) -> None:
        self._next[me] = event
        while True:
            mine = event()
            other, earliest, limit = self._earliest(me)
            if mine < inf and mine <= (limit if ahead else earliest):
                return
            if earliest == inf:
                raise self._stuck()
            self._batons[other].release()
            self._await_baton(me)

    def _earliest(self, me: int) -> tuple[int, float, float]:
        """Which other machine moves next, when, and until when nothing that any other does can reach this one."""
        first, earliest, limit = me, inf, inf
        for number, event in enumerate(self._next):
            if number != me and (time := event()) < inf:
                limit = min(limit, time + self._ahead[me][number])
                if time < earliest:
                    first, earliest = number, time
        return first, earliest, limit

    def _await_baton(self, me: int) -> None:
        self._batons[me].acquire()
        if self._failure is not None:
            raise Abandoned
