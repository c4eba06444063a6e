"""Where the rows of a ledger come from, as far as this machine's key can say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Origin(StrEnum):
    """What the MAC of one row says."""

    HERE = "here"
    """Made with this machine's key."""
    ELSEWHERE = "elsewhere"
    """Its MAC names another key, which only its owner can check."""
    UNSIGNED = "unsigned"
    """It has no MAC: older than these, or written where there was no key, or by hand."""
    FORGED = "forged"
    """Its MAC names this machine's key, which did not make it for this row."""


@dataclass(frozen=True, kw_only=True)
class Origins:
    """The origins of all rows of a ledger."""

    no_key: str
    """Why this machine has no key; ``""`` where it has one."""
    by_id: dict[str, Origin]
    """In the order of the rows; empty where there is no key."""

    def ids(self, origin: Origin) -> tuple[str, ...]:
        """The rows of one origin."""
        return tuple(name for name, one in self.by_id.items() if one is origin)

    @property
    def later_strangers(self) -> tuple[str, ...]:
        """Rows not from this machine's key that follow one that is: pulled from elsewhere, or forged."""
        names = list(self.by_id)
        first = next((place for place, name in enumerate(names) if self.by_id[name] is Origin.HERE), len(names))
        return tuple(name for name in names[first:] if self.by_id[name] is not Origin.HERE)
