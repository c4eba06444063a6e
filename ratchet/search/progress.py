"""How far a search is: one value for its own screen, for ``status --watch`` and for ``serve``. A file in .ratchet."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ratchet.exam.judge.secret import FOLDER
from ratchet.process.root import Root
from ratchet.search.space import Observation, Space, best
from ratchet.values import Point

_PLACE = f"{FOLDER}/search"
_END = ".now"
_MOST_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True)
class Searching:
    """A search under way."""

    kernel: str
    how: str
    done: int = 0
    """Trials that have a row, those of an interrupted run counted."""
    of: int
    """Trials at most: a search also ends without a better one for long."""
    kept: int = 0
    began_ms: float
    """Latency of HEAD's kernel as it began."""
    best_ms: float | None = None
    best: Point = field(default_factory=dict)
    left_s: float | None = None
    """Seconds at most, by the trials so far; None before the first."""


@dataclass(kw_only=True)
class Progress:
    """Follows a search: each trial as its row is written, and what is known then."""

    root: Path
    study: str
    now: Searching
    seconds: float | None = None
    """After which nothing new is begun."""
    show: Callable[[Searching, Observation], None] = lambda _now, _one: None
    """Called with each trial; its number is ``now.done``."""
    clock: Callable[[], float] = time.monotonic
    _began: float = field(init=False)
    _known: int = 0
    _seen: list[Observation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._write()

    def trial(self, one: Observation, *, known: bool = False) -> None:
        """A trial has a row; ``known``: it had one before this run."""
        self._seen.append(one)
        self._known += known
        top, done = best(self._seen), len(self._seen)
        self.now = replace(
            self.now,
            done=done,
            kept=self.now.kept + one.kept,
            best_ms=top.latency_ms if top else None,
            best=top.point if top else {},
            left_s=self._left(done),
        )
        self._write()
        self.show(self.now, one)

    def _left(self, done: int) -> float | None:
        judged, spent = done - self._known, self.clock() - self._began
        if not judged or done >= self.now.of:
            return None
        left = spent / judged * max(0, self.now.of - done)
        return left if self.seconds is None else min(left, max(0.0, self.seconds - spent))

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # what others see of it is no reason to fail
            Root(self.root).write(_name(self.study), json.dumps(asdict(self.now)).encode(), flush=False)

    def end(self) -> None:
        """Nothing is under way any more."""
        with contextlib.suppress(OSError):
            Root(self.root).unlink(_name(self.study))


def trials_of(space: Space, most: int) -> int:
    """How many trials a search of a space may take, ``most`` at most."""
    return min(most, sum(1 for _ in space.points()))


def under_way(root: Path) -> tuple[Searching, ...]:
    """The searches of a clone whose studies are held."""
    top = Root(root)
    try:
        studies = [name.removesuffix(_END) for name in top.names(_PLACE) if name.endswith(_END)]
    except OSError:
        return ()
    return tuple(_read(top, studies))


def lock_of(study: str) -> str:
    """The file of a clone that is locked while somebody searches by this study."""
    return f"{_PLACE}/{study}.lock"


def _read(top: Root, studies: list[str]) -> Iterator[Searching]:
    for study in studies:
        with contextlib.suppress(OSError, ValueError, TypeError):
            if top.is_locked(lock_of(study)):
                yield Searching(**json.loads(top.read(_name(study), _MOST_BYTES)))


def _name(study: str) -> str:
    return f"{_PLACE}/{study}{_END}"
