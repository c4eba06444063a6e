"""What one who improves a kernel has to know before the next experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ratchet.values.loss import Key, Refuted
from ratchet.values.row import Row
from ratchet.values.timeline import Timeline

PLATEAU = 10
"""From so many experiments without a kept one on, that is a plateau."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What the kernel has to compute."""

    kernel: str
    """Path of its file."""
    name: str
    description: str
    digest: str
    """Of the frozen problem."""


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """An edit that is modelled as faster; ``ratchet advise --apply NUMBER`` makes it."""

    number: int
    title: str
    """Untrusted: it has names of the author's."""
    predicted_ms: float
    """What the judge's model says of the file with the edit made."""
    modelled_ms: float
    """The same of the file as it is."""
    checked: bool
    """Whether its values were, too."""


@dataclass(frozen=True, kw_only=True)
class Brief:
    """All of it."""

    task: Task
    source: tuple[str, ...]
    """The lines of HEAD's kernel."""
    incumbent: Row | None
    """The newest row with a score of HEAD's kernel."""
    timeline: Timeline | None
    """The modelled run of the incumbent, without spans; None where its evidence is gone."""
    refuted: Mapping[Key, Refuted]
    """Losses that were removed without a gain."""
    kept: tuple[Row, ...]
    """What was kept, newest first."""
    reverted: tuple[Row, ...]
    """What was tried and failed, newest first; of the same bytes the last."""
    since_kept: int
    """Experiments after the last that was kept."""
    repeated: tuple[str, ...]
    """Parts of the file that most of the recent failures changed."""
    twice: int
    """Experiments whose bytes had been judged before, under the same conditions."""
    experiments: int
    seconds: float
    """Of judging, all experiments together."""
    turn_seconds: float | None = None
    """What judging one takes: the median of the newest; None before the first."""
    suggestions: tuple[Suggestion, ...] = ()
    """What to try next, fastest first, as far as it is modelled."""
    no_faster: int = 0
    """Edits that were modelled and are not faster."""
    not_modelled: int = 0
    """Edits that were not modelled yet."""

    @property
    def plateau(self) -> bool:
        return self.since_kept >= PLATEAU
