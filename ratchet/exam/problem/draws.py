"""How integers are drawn, and what else the same generator could have drawn. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratchet.values import ArraySpec

EACH, SORTED, PARTS = "each", "sorted", "parts"
KINDS = (EACH, SORTED, PARTS)
"""``each``: every element by itself; ``sorted``: those, in order along the last axis; ``parts``: how often each of
several was drawn, so that their sum is always the same."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """How an integer input is drawn. ``first`` and ``last`` are the ends of its range, both of them possible."""

    kind: str
    first: int
    last: int


def drawn_of(entries: object, inputs: Sequence[ArraySpec]) -> tuple[Drawn | None, ...]:
    """How integer inputs are drawn, from plain JSON.

    Raises:
      ValueError: unless each is null or ``[kind, first, last]`` of an integer input.
    """
    if entries is None:
        return ()
    if not isinstance(entries, list) or len(entries) != len(inputs):
        raise ValueError(f"drawn is {entries!r:.80}, wanted one entry for each of {len(inputs)} inputs")
    for one, spec in zip(entries, inputs, strict=True):
        if one is not None and not (
            isinstance(one, list)
            and len(one) == 3
            and one[0] in KINDS
            and spec.dtype.startswith(("int", "uint"))
            and all(type(end) is int and abs(end) < 1 << 32 for end in one[1:])
            and one[1] <= one[2]
        ):
            raise ValueError(f"drawn: {one!r:.80} says nothing of {spec}")
    found = tuple(one and Drawn(kind=one[0], first=one[1], last=one[2]) for one in entries)
    return found if any(found) else ()


OFTEN = 8
"""One element in so many becomes the first value, and one the last."""
CROWDED = 2
"""Values of which each is drawn so often on average are groups: one of them is left empty, or all elements are one."""


def extreme(
    array: np.ndarray[Any, Any], how: Drawn, generator: np.random.Generator, *, full: bool = False
) -> np.ndarray[Any, Any]:
    """Another draw of the same generator, one that it makes seldom.

    The first and the last value of the range are there often, and one in between is not there at all; with ``full``
    one group has all there is, where values are groups or sizes of groups.
    """
    new, flat = np.array(array), array.reshape(-1)
    if array.size and how.kind == PARTS:
        new = _parts(flat, generator, full=full)
    elif array.size:
        new = _each(flat, how, generator, full=full)
        if how.kind == SORTED:
            new = np.sort(new.reshape(array.shape), axis=-1)
    return new.reshape(array.shape).astype(array.dtype)


def _each(
    flat: np.ndarray[Any, Any], how: Drawn, generator: np.random.Generator, *, full: bool
) -> np.ndarray[Any, Any]:
    new, count = np.array(flat), how.last - how.first + 1
    if 2 < count <= flat.size // CROWDED:
        if full:
            return np.full_like(flat, how.last)
        empty = generator.integers(how.first + 1, how.last)
        new[new == empty] = how.last
    order, some = generator.permutation(flat.size), max(1, flat.size // OFTEN)
    first, last = order[:some], order[some : 2 * some]
    if not last.size:  # one element is either
        first, last = (first, last) if full else (last, first)
    new[first], new[last] = how.first, how.last
    return new


def _parts(flat: np.ndarray[Any, Any], generator: np.random.Generator, *, full: bool) -> np.ndarray[Any, Any]:
    """The first, the last and one in between are empty, another has what they had; ``full``: the last has all."""
    new = np.array(flat)
    if full or flat.size < 4:
        empty, other = np.arange(flat.size - 1), flat.size - 1
    else:
        empty = np.array([0, flat.size - 1, generator.integers(1, flat.size - 1)])
        other = int(generator.choice(np.setdiff1d(np.arange(flat.size), empty)))
    new[other] += new[empty].sum()
    new[empty] = 0
    return new
