"""Accesses of cores to memory that nothing orders: clocks of what each core knows of the others (Lamport; FastTrack).

A core's clock ticks where it lets another go on; who waits for that knows all that the other did before. An access is
kept for each element with the clock of its core, until a copy is waited for as one that is later than all clocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from ratchet.tpu.mosaic.cores.views import Selector

IN_FLIGHT = 2**31 - 1
"""The time of a copy that has not been waited for."""


class Access(IntEnum):
    """Reads beside reads change nothing, and neither do atomic additions beside additions."""

    READ = 0
    ADD = 1
    WRITE = 2


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """Another access to the same memory that may come before or after."""

    core: int
    access: Access
    in_flight: bool


@dataclass(kw_only=True)
class Clocks:
    """What each of some cores knows of the others, and what was done to each piece of memory."""

    cores: int
    known: np.ndarray = field(init=False)
    """int32[cores, cores]: of each core, the latest time of every core that it comes after."""
    _left: dict[object, np.ndarray] = field(default_factory=dict)
    """What is known to who waits for a semaphore or barrier."""
    _times: dict[tuple[int, Access], dict[int, np.ndarray]] = field(default_factory=dict)
    """Reads and additions, by memory: of each core that made some, int32, when it last did so to each element."""
    _writes: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    """By memory: int16 and int32, who wrote each element last, and when."""

    def __post_init__(self) -> None:
        self.known = np.zeros((self.cores, self.cores), np.int32)
        np.fill_diagonal(self.known, 1)

    def leave(self, core: int, where: object) -> None:
        """A core lets go on who waits at ``where``."""
        before = self._left.get(where)
        self._left[where] = self.known[core].copy() if before is None else np.maximum(before, self.known[core])
        self.known[core, core] += 1

    def take(self, core: int, where: object) -> None:
        """A core goes on that waited at ``where``."""
        if where in self._left:
            np.maximum(self.known[core], self._left[where], out=self.known[core])

    def access(
        self, core: int, access: Access, array: np.ndarray, at: Selector, *, in_flight: bool,
        same: np.ndarray | None = None,
    ) -> Conflict | None:  # fmt: skip
        """Note an access; one before it that nothing orders.

        Args:
            same: of a write, the elements where it writes what was written last: beside another core's write it changes
                nothing there, whichever comes first.
        """
        found = self._last_write(core, array, at, same)
        for other in (Access.READ, Access.ADD):
            if other == access:
                continue
            for who, times in self._times.get((id(array), other), {}).items():
                latest = int(times[at].max(initial=0))
                if latest > self.known[core, who]:
                    found = found or Conflict(core=who, access=other, in_flight=latest == IN_FLIGHT)
        self._set(core, access, array, at, IN_FLIGHT if in_flight else int(self.known[core, core]))
        return found

    def _last_write(self, core: int, array: np.ndarray, at: Selector, same: np.ndarray | None) -> Conflict | None:
        """A write before that nothing orders. Of those before it in turn each was found when it was overwritten."""
        if id(array) not in self._writes:
            return None
        who, when = (every[at] for every in self._writes[id(array)])
        unordered = when > self.known[core][who]
        if same is not None:
            unordered &= ~same | (who == core)
        if not unordered.any():
            return None
        one = np.flatnonzero(unordered)[0]
        return Conflict(core=int(who.flat[one]), access=Access.WRITE, in_flight=int(when.flat[one]) == IN_FLIGHT)

    def landed(self, starter: int, waiter: int, access: Access, array: np.ndarray, at: Selector) -> None:
        """The access of a copy is over, as its waiter knows."""
        if access is not Access.WRITE:
            self._set(starter, access, array, at, 0)
            self._set(waiter, access, array, at, int(self.known[waiter, waiter]))
            return
        who, when = self._writes[id(array)]
        over = (who[at] == starter) & (when[at] == IN_FLIGHT)  # another may have written the same since
        who[at] = np.where(over, waiter, who[at])
        when[at] = np.where(over, self.known[waiter, waiter], when[at])

    def _set(self, core: int, access: Access, array: np.ndarray, at: Selector, time: int) -> None:
        if access is Access.WRITE:
            if id(array) not in self._writes:
                self._writes[id(array)] = np.zeros(array.shape, np.int16), np.zeros(array.shape, np.int32)
            for every, value in zip(self._writes[id(array)], (core, time), strict=True):
                every[at] = value
            return
        by_core = self._times.setdefault((id(array), access), {})
        if core not in by_core:
            by_core[core] = np.zeros(array.shape, np.int32)
        by_core[core][at] = time
