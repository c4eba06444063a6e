"""Whose turn it is: machines that run together, each in a thread, of which exactly one moves at any time.

A machine goes on by itself until what it does next could depend on, or matter to, another one. Then the machine with
the earliest next event moves. Nothing that one machine does can reach another sooner than one hop later, so a machine
may run ahead of the others by that much where it only looks at what has come.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import inf


class Abandoned(BaseException):
    """Ends a machine's thread because the run as a whole has failed."""


class Interleaving:
    """The order in which machines move."""

    def __init__(self, count: int, lookahead: float, stuck: Callable[[], Exception]) -> None:
        """``lookahead`` in cycles; ``stuck`` makes the error for the case that no machine can ever move again."""
        self._lookahead = lookahead
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
            other, time = self._earliest(me)
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
        self._pass_on(me, lambda: time, 0.0)

    def seen(self, me: int, time: float) -> None:
        """Returns once everything is known that reaches this machine up to ``time``."""
        self._pass_on(me, lambda: time, self._lookahead)

    def until(self, me: int, event: Callable[[], float]) -> None:
        """Returns once ``event`` is due and nothing can make it due earlier.

        Args:
            me: number of the machine.
            event: its cycle as far as is known; infinite where others have to act first.

        Raises:
            Exception: what ``stuck`` makes, if that never happens.
        """
        self._pass_on(me, event, self._lookahead)

    def _pass_on(self, me: int, event: Callable[[], float], lookahead: float) -> None:
        self._next[me] = event
        while True:
            mine = event()
            other, earliest = self._earliest(me)
            if mine < inf and mine <= earliest + lookahead:
                return
            if earliest == inf:
                raise self._stuck()
            self._batons[other].release()
            self._await_baton(me)

    def _earliest(self, me: int) -> tuple[int, float]:
        first, earliest = me, inf
        for number, event in enumerate(self._next):
            if number != me and (time := event()) < earliest:
                first, earliest = number, time
        return first, earliest

    def _await_baton(self, me: int) -> None:
        self._batons[me].acquire()
        if self._failure is not None:
            raise Abandoned
