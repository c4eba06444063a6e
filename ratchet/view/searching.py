"""A search under way: one line for all of it, and one for each trial."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ratchet.kernelfile.knobs import in_words
from ratchet.loop.decide import BEGINNINGS
from ratchet.loop.rows import AS_IT_IS
from ratchet.search.progress import Searching
from ratchet.search.space import Observation, Space
from ratchet.values import Decision
from ratchet.view.console import width_of
from ratchet.view.text import cause, clean, cut, fixed, time_change, times, wrapped

_UNDER = "     "


def headline(now: Searching) -> str:
    """``search kernel.py · tpe · 7 of 12 · best 0.6178 ms (7.01x) BQ 1024, BKV 1024 · 2 min left``."""
    said = [f"search {now.kernel}", now.how, f"{now.done} of {now.of}"]
    if now.best_ms is not None:
        said.append(f"best {fixed(now.best_ms, 4)} ms ({times(now.began_ms / now.best_ms)}) {in_words(now.best)}")
    if now.left_s is not None:
        said.append(f"{duration(now.left_s)} left")
    return clean(" · ".join(said))


def stopped(now: Searching) -> str:
    """What an interrupted search leaves, and how to go on."""
    best = f", best {fixed(now.best_ms, 4)} ms" if now.best_ms is not None else ""
    kept = f"{now.kept} kept" if now.kept else "none kept"
    return clean(f"stopped at {now.done} of {now.of}, {kept}{best}; the same command goes on")


def duration(seconds: float) -> str:
    """``40 s``, ``2 min``, ``1 h 20 min``."""
    if seconds < 90:
        return f"{max(1, math.ceil(seconds))} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def trial_lines(number: int, one: Observation, space: Space, before_ms: float, width: int | None) -> list[str]:
    """One trial: its number, point, latency, how the time changed beside the best before it, and what became of it.

    A line is at most ``width`` wide; what is longer goes on below.
    """
    point = "  ".join(
        f"{clean(axis.name)} {clean(str(one.point.get(axis.name, ''))):>{max(len(str(v)) for v in axis.values)}}"
        for axis in space.axes
    )
    ms = "" if one.latency_ms is None else f"{fixed(one.latency_ms, 4)} ms"
    moved = "" if one.latency_ms is None else time_change(before_ms / one.latency_ms)
    line = f"{number:>3}  {point}  {ms:>9}  {moved:>7}  {outcome(one)}"
    return [line] if width is None or len(line) <= width else wrapped(line, max(24, width), "", _UNDER)


def outcome(one: Observation) -> str:
    """What became of a trial, in a few words: ``kept``, ``slower``, or the status with its cause."""
    said = cause(one.reason)
    word = said.partition(":")[0]
    if one.kept:
        return "kept"
    if word.startswith(BEGINNINGS):
        return word
    if one.latency_ms is not None:
        return "as it is" if said.startswith(AS_IT_IS) else cut(said, 80)
    return f"{one.status.name}: {said}"


def decided(row_decision: str, reason: str, name: str) -> str:
    """One candidate that has a row now, in a line."""
    return clean(f"{name}: {row_decision}" + ("" if row_decision == Decision.KEPT else f", {cause(reason)}"))


class Screen:
    """What a search prints while it runs: the headline, on a terminal always below, and a line for each trial.

    Use it as a context manager, so that the terminal gets its cursor back.
    """

    def __init__(self, space: Space, began_ms: float, stream: TextIO | None = None) -> None:
        self._console = Console(file=stream or sys.stderr, highlight=False, soft_wrap=True)
        self._space, self._before = space, began_ms
        self._live = Live(console=self._console, transient=True, auto_refresh=False)
        self._is_live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._width = width_of(stream or sys.stderr)

    def head(self, now: Searching) -> None:
        """What is known of all of it."""
        if self._is_live:
            lines = wrapped(headline(now), max(24, (self._width or 80) - 1), "", _UNDER)
            self._live.update(Text("\n".join(lines)), refresh=True)
        else:
            self._print(headline(now))

    def trial(self, now: Searching, one: Observation) -> None:
        """One more trial."""
        for line in trial_lines(now.done, one, self._space, self._before, self._width):
            self._print(line)
        if one.kept and one.latency_ms is not None:
            self._before = one.latency_ms
        if self._is_live:
            self.head(now)

    def _print(self, line: str) -> None:
        self._console.print(Text(line))

    def __enter__(self) -> Screen:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._live.stop()


def words_of(searches: Sequence[Searching]) -> str:
    """Those of a clone, in a line."""
    return "; ".join(map(headline, searches))
