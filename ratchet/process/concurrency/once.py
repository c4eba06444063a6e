"""A property that is made once, by who asks first, while others wait for it.

``functools.cached_property`` has one lock for all objects of a class in Python 3.11, so that two programs never compile
beside each other, and none in later versions, where two threads make the same thing twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):
    """As ``functools.cached_property``, with a lock for each object. What making it raises is tried again."""

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
