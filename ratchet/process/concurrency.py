"""Work side by side: jobs in the background, and properties that are computed once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")

PARSING = threading.Lock()
"""Held around ``ast.parse``: CPython 3.11 counts the depth of all threads' trees together, and fails where two parse at
once (gh-106905)."""


class BackgroundJobs(Generic[T]):
    """Jobs that run one after another in a thread, beside what their owner does.

    XLA compiles and executes without Python's lock, mostly on one core: a job costs little of the owner's time. Who
    waits for one job runs others that have not begun.
    """

    def __init__(self) -> None:
        self._futures: dict[Hashable, Future[T]] = {}
        self._jobs: dict[Hashable, Callable[[], T]] = {}
        self._claiming = threading.Lock()

    def begin(self, jobs: dict[Hashable, Callable[[], T]]) -> None:
        """Begin these jobs in their order, except those that were begun before."""
        new = {name: job for name, job in jobs.items() if name not in self._futures}
        if not new:
            return
        self._jobs |= new
        thread = ThreadPoolExecutor(max_workers=1)
        self._futures |= {name: thread.submit(job) for name, job in new.items()}
        thread.shutdown(wait=False)  # it ends once all are done

    def take(self, name: Hashable) -> T | None:
        """The result of a job, once it is there; None where no job of this name was begun.

        Raises:
            Exception: what the job raised.
        """
        while name in self._futures and not self._futures[name].done() and (claimed := self._claimed(name)) is not None:
            job, own = claimed
            try:
                own.set_result(job())
            except Exception as error:  # as a thread would keep it, for who takes it
                own.set_exception(error)
        future = self._futures.get(name)
        return None if future is None else future.result()

    def _claimed(self, first: Hashable) -> tuple[Callable[[], T], Future[T]] | None:
        """A job that has not begun, ``first`` if it can be, now to be run by the caller; None where all have begun."""
        with self._claiming:
            for name in (first, *self._futures):
                if self._futures[name].cancel():
                    future: Future[T] = Future()
                    future.set_running_or_notify_cancel()
                    self._futures[name] = future
                    return self._jobs[name], future
        return None

    def forget(self) -> None:
        """Drop all results, and the jobs that have not begun."""
        for future in self._futures.values():
            future.cancel()
        self._futures, self._jobs = {}, {}


class once(Generic[T]):
    """As ``functools.cached_property``, with a lock for each object. What raised is tried again.

    ``cached_property`` has one lock for all objects of a class in Python 3.11, so that two programs never compile
    beside each other, and none in later versions, where two threads compute the same thing twice.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> once[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> once[T] | T:
        if instance is None:
            return self
        own = instance.__dict__  # which is asked first from now on
        with own.setdefault(f"{self._name} is made", threading.RLock()):
            if self._name not in own:
                own[self._name] = self._make(instance)
            made: T = own[self._name]
            return made
