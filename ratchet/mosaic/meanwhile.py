"""Work that is begun in another thread, and waited for where its result is used."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Meanwhile(Generic[T]):
    """Makes things beside what its owner does, one after another.

    XLA compiles and executes outside of Python's lock, mostly on one core: it costs little of the owner's time.
    """

    def __init__(self) -> None:
        self._begun: dict[Hashable, Future[T]] = {}

    def begin(self, makers: dict[Hashable, Callable[[], T]]) -> None:
        """Begin to make what ``makers`` say, in their order, except what was begun before."""
        new = {name: make for name, make in makers.items() if name not in self._begun}
        if not new:
            return
        thread = ThreadPoolExecutor(max_workers=1)
        self._begun |= {name: thread.submit(make) for name, make in new.items()}
        thread.shutdown(wait=False)  # it ends once all is made

    def take(self, name: Hashable) -> T | None:
        """What was begun under ``name``, once it is there; None where nothing was.

        Raises:
            Exception: what making it raised.
        """
        future = self._begun.get(name)
        return None if future is None else future.result()

    def forget(self) -> None:
        """Make nothing of what is not being made yet."""
        for future in self._begun.values():
            future.cancel()
        self._begun = {}
