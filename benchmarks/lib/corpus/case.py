"""One way to call one public kernel, and the table of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Call:
    """A kernel with its arguments, made in the process that runs it."""

    function: Callable[..., Any]
    arrays: tuple[Any, ...]
    """Positional arguments: arrays or pytrees of them. Integers steer the modelled run."""
    reference: Callable[..., Any] | None = None
    """The repository's own reference, of the same arguments; without one, Pallas's interpreter is asked."""
    tolerance: float = 0.02
    """Largest error over the largest value of an output: products of float32 pass the matrix unit as bfloat16."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """An entry of the list."""

    name: str
    """``repository/kernel, variant``."""
    repository: str
    """Key of :data:`REPOSITORIES`."""
    path: str
    """Where the kernel is, from the top of its repository."""
    call: Callable[[], Call]
    """Imports the kernel and makes its arguments."""


CASES: dict[str, Case] = {}
"""By name, in the order of the list."""


def case(name: str, *, path: str) -> Callable[[Callable[[], Call]], Callable[[], Call]]:
    """Enter a kernel into the list; the decorated function is its :attr:`Case.call`."""

    def enter(call: Callable[[], Call]) -> Callable[[], Call]:
        if name in CASES:
            raise ValueError(f"{name!r} is in the list already")
        CASES[name] = Case(name=name, repository=name.partition("/")[0], path=path, call=call)
        return call

    return enter
