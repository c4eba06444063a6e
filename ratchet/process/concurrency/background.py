"""Work that is begun in another thread, and waited for where its result is used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")

ENABLED = True
"""Whether anything is begun before it is asked for. Without, all results are the same, and later."""


class Meanwhile(Generic[T]):
    """Makes things beside what its owner does, one after another.

    XLA compiles and executes outside of Python's lock, mostly on one core: it costs little of the owner's time. Who
    waits for one makes others that nobody makes yet.
    """

    def __init__(self) -> None:
        self._begun: dict[Hashable, Future[T]] = {}
        self._makers: dict[Hashable, Callable[[], T]] = {}
        self._stealing = threading.Lock()

    def begin(self, makers: dict[Hashable, Callable[[], T]]) -> None:
        """Begin to make what ``makers`` say, in their order, except what was begun before."""
        new = {name: make for name, make in makers.items() if name not in self._begun}
        if not new or not ENABLED:
            return
        self._makers |= new
        thread = ThreadPoolExecutor(max_workers=1)
        self._begun |= {name: thread.submit(make) for name, make in new.items()}
        thread.shutdown(wait=False)  # it ends once all is made

    def take(self, name: Hashable) -> T | None:
        """What was begun under ``name``, once it is there; None where nothing was.

        Raises:
            Exception: what making it raised.
        """
        while name in self._begun and not self._begun[name].done() and (other := self._stolen(name)) is not None:
            make, mine = other
            try:
                mine.set_result(make())
            except Exception as error:  # as a thread would keep it, for who takes it
                mine.set_exception(error)
        future = self._begun.get(name)
        return None if future is None else future.result()

    def _stolen(self, first: Hashable) -> tuple[Callable[[], T], Future[T]] | None:
        """What nobody makes yet, ``first`` if it can be, now to be made by who asks; None where all is being made."""
        with self._stealing:
            for name in (first, *self._begun):
                if self._begun[name].cancel():
                    mine: Future[T] = Future()
                    mine.set_running_or_notify_cancel()
                    self._begun[name] = mine
                    return self._makers[name], mine
        return None

    def forget(self) -> None:
        """Make nothing of what is not being made yet."""
        for future in self._begun.values():
            future.cancel()
        self._begun, self._makers = {}, {}
