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
    """Name of the defence that was seen to catch it: the verdict's refusal says which it was."""
    wanted: tuple[str, ...] = ()
    """Names of the defences that may catch it."""
    seen: bool = True
    """Whether the outcome says which of them it was. What has no effect, or is refused before a verdict, does not."""
    reason: str = ""
    """The verdict's reason, or why the entry was skipped."""
    seconds: float = 0.0

    @property
    def skipped(self) -> bool:
        """Whether it was not judged, because this machine lacks something."""
        return not self.got

    @property
    def as_expected(self) -> bool:
        """Whether it ended as it has to, by a defence that has to catch it wherever that is seen."""
        caught = self.group == "honest" or not self.seen or self.defence in self.wanted
        return caught and self.got in self.expected
