"""The order of a ledger's rows: a chain of hashes, and how two chains that were merged are one file. Pure.

Each row names the one before it in ``previous``. A merge row names two: in ``evidence`` the last row of the line it was
written on, in ``previous`` the last row of the other line. Nothing else orders a ledger, so its last row decides the
whole file:

- the file of a plain row is the file of the row before it, then the row;
- the file of a merge row is the file of its own line, then those rows of the other line's file that are not in it yet,
  in their order there, then the merge row.

A file that is in any other order, has a row too few, one too many or an edited one, is not a ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Link:
    """What a row comes after; hashes of lines."""

    previous: str
    own: str = ""
    """Of a merge row: the last row of the line that it was written on."""

    @property
    def line(self) -> str:
        """The row before it on its own line."""
        return self.own or self.previous


def ordered(last: str, link: Callable[[str], Link], *, root: str) -> list[str]:
    """The hashes of all rows of the file that ends with ``last``, in order; ``root`` is the header's.

    Raises:
        KeyError: ``link`` does not know a row.
    """
    placed = {root: None}
    walks = [_back(last, placed, link)]
    while walks:
        walk = walks[-1]
        if not walk:
            walks.pop()
            continue
        here = link(walk[-1])
        if here.own and here.previous not in placed:
            walks.append(_back(here.previous, placed, link))
        else:
            placed[walk.pop()] = None
    return list(placed)[1:]


def _back(last: str, placed: dict[str, None], link: Callable[[str], Link]) -> list[str]:
    """From ``last`` back along its line, up to what has its place."""
    walk = []
    while last not in placed:
        walk.append(last)
        last = link(last).line
    return walk
