"""Which cases of a test always run. The others are slow ones: see CONTRIBUTING.md."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest


def cases(quick: Collection[str], among: Iterable[str]) -> list[Any]:
    """The names ``among`` which a test chooses, as parameters: what is not ``quick`` is marked slow."""
    names = list(among)
    assert set(quick) <= set(names), sorted(set(quick) - set(names))
    return [name if name in quick else slow(name) for name in names]


def slow(*values: Any) -> Any:
    """A case that only runs with the slow ones."""
    return pytest.param(*values, marks=pytest.mark.slow)


def slow_but(quick: int, values: Sequence[Any]) -> list[Any]:
    """``values`` as parameters, of which only the first ``quick`` always run."""
    return [*values[:quick], *map(slow, values[quick:])]
