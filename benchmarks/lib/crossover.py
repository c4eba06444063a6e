"""From which context on four chips beat one: by bisection, to a step."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any


def crossover(slower: Callable[[int], bool], contexts: Sequence[int]) -> int | None:
    """The smallest context, to half of the smallest one, at which four chips are no longer ``slower``."""
    wins = next((context for context in contexts if not slower(context)), None)
    if wins is None or wins == contexts[0]:
        return wins
    step = contexts[0] // 2
    between = range(wins // 2 + step, wins, step)
    return (*between, wins)[bisect_left(between, True, key=lambda context: not slower(context))]


def crossover_rows(
    what: dict[str, Any], us: Callable[[int, int], float], contexts: Sequence[int]
) -> list[dict[str, Any]]:
    """One row per context, begun by ``what``; ``us(context, chips)`` are the latencies, asked for once each."""
    latency = functools.cache(us)
    crossing = crossover(lambda context: latency(context, 4) >= latency(context, 1), contexts)
    rows = []
    for context in sorted({*contexts, *((crossing,) if crossing else ())}):
        one, four = latency(context, 1), latency(context, 4)
        rows.append(
            {
                **what,
                "context": context,
                "one chip us": one,
                "four chips us": four,
                "times as fast": one / four,
                "four win from": crossing,
            }
        )
    return rows
