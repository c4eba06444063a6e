"""The page of all reports: a line for each kernel of a ledger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.report import words
from ratchet.report.page import environment, styled
from ratchet.report.story import Outcome, Story, Track
from ratchet.view.text import clean

_WIDE, _HIGH = 120, 32
"""Of a sketched history, in pixels."""
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line."""

    file: str
    kernel: str
    name: str
    kind: str
    latency: str
    gained: str
    share: str
    experiments: int
    sketch: str
    """Points of the line of the kernel in place, as SVG has them."""


def names(kernels: Sequence[str]) -> list[str]:
    """A file name for each kernel file, no two the same: ``examples-rope.py.html``."""
    made: list[str] = []
    for kernel in kernels:
        safe = "".join(one if one in _SAFE else "-" for one in kernel.replace("/", "-")).lstrip(".-") or "kernel"
        name, count = f"{safe}.html", 2
        while name.lower() in [one.lower() for one in (*made, "index.html")]:
            name, count = f"{safe}-{count}.html", count + 1
        made.append(name)
    return made


def index(stories: Sequence[Story], files: Sequence[str]) -> str:
    """The document."""
    entries = [_entry(story, file) for story, file in zip(stories, files, strict=True)]
    repository = stories[0].material.repository if stories else ""
    return environment().get_template("index.html").render(entries=entries, repository=repository, **styled())


def _entry(story: Story, file: str) -> Entry:
    track, problem = story.main, story.material.problem
    current = track.current if track else None
    return Entry(
        file=file,
        kernel=clean(story.material.kernel),
        name=clean(problem.name) if problem else "",
        kind=words.kind(track) if track else "",
        latency=words.ms(current.latency_ms if current else None),
        gained=words.times_in_words(track.factor) if track and track.gains else "–",
        share=words.share_of_roofline(current) if current else "–",
        experiments=len(story.experiments),
        sketch=_sketch(track) if track else "",
    )


def _sketch(track: Track) -> str:
    kept = [one for one in track.experiments if one.outcome in (Outcome.KEPT, Outcome.BASELINE) and one.latency_ms]
    if len(kept) < 2:
        return ""
    levels = [math.log(one.latency_ms or 1.0) for one in kept]
    low, span = min(levels), max(max(levels) - min(levels), 1e-9)
    last = max(1, track.experiments[-1].number - track.experiments[0].number)
    points: list[tuple[float, float]] = []
    for one, level in zip(kept, levels, strict=True):
        x = (one.number - track.experiments[0].number) / last * (_WIDE - 4) + 2
        y = _HIGH - 3 - (level - low) / span * (_HIGH - 6)
        points += [(x, points[-1][1])] if points else []
        points.append((x, y))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
