"""Several kernels judged at once: a lane is one set of the judge's children, kept from one kernel to the next."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

from ratchet.exam.judge.workers import Workers

Result = TypeVar("Result")


class Lanes:
    """Lanes side by side. Leaving the context closes them.

    Results come as the work of a lane is done: ``as_completed``, or ``wait`` for the first of them, to choose by it
    what is submitted next.
    """

    def __init__(self, count: int, make: Callable[[], Workers]) -> None:
        """Start ``count`` lanes, at least one, each with the workers that a call of ``make`` returns.

        Raises:
          Refusal: what ``make`` raises. Those that were made by then are closed.
        """
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="lane")
        self._idle: queue.SimpleQueue[Workers] = queue.SimpleQueue()
        self._kept: list[Workers] = []
        try:
            for _ in range(count):
                self._kept.append(make())
                self._idle.put(self._kept[-1])
        except BaseException:
            self.close()
            raise

    def submit(self, work: Callable[[Workers], Result]) -> Future[Result]:
        """Call ``work`` with the workers of the next lane that is idle, in the order of submission.

        Raises:
          RuntimeError: the lanes were stopped.
        """
        return self._pool.submit(self._on_a_lane, work)

    def _on_a_lane(self, work: Callable[[Workers], Result]) -> Result:
        workers = self._idle.get()
        try:
            return work(workers)
        finally:
            self._idle.put(workers)

    def stop(self) -> None:
        """Begin nothing more: what waits is cancelled, what is under way goes on. Any thread may ask, again too."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """``stop``, and end what is under way: its result is of no use. Safe to call twice."""
        self.stop()
        for workers in self._kept:
            workers.close()
        self._pool.shutdown()
        for workers in self._kept:  # again: a child may have been about to start
            workers.close()

    def __enter__(self) -> Lanes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
