"""One entry of the corpus of the self-test, judged."""

from __future__ import annotations

from dataclasses import dataclass

NO_GAIN = "NO_GAIN"
"""The kernel passes, and is no faster than the honest one that it was made from."""
NO_EFFECT = "NO_EFFECT"
"""The command ends as it does in a tree without the attack, and nothing that was planted ran."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What was expected of one entry, and what came of it."""

    name: str
    group: str
    """``cheat``, ``planted`` (an attack on the tree) or ``honest``."""
    kind: str
    """The mechanism of a cheat; of an honest kernel the operator."""
    expected: tuple[str, ...]
    """Names of statuses, or ``NO_GAIN``, or ``NO_EFFECT``."""
    got: str = ""
    """Likewise; ``""`` where the entry was skipped."""
    defence: str = ""
    """Name of the defence that caught it."""
    wanted: tuple[str, ...] = ()
    """Names of the defences that may catch it."""
    reason: str = ""
    """The verdict's reason, or why the entry was skipped."""
    seconds: float = 0.0

    @property
    def skipped(self) -> bool:
        """Whether it was not judged, because this machine lacks something."""
        return not self.got

    @property
    def as_expected(self) -> bool:
        """Whether it ended as it has to, by the defence that has to catch it."""
        return self.got in self.expected and (self.group == "honest" or self.defence in self.wanted)
