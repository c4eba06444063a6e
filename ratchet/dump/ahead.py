"""Listings that are read while the compiler still works: that of a large kernel takes a second or two to read.

What was read ahead counts only where its texts are what the program's dumps turn out to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.dump.instruction import Instruction
from ratchet.dump.listing import Listing, parse, read_statements
from ratchet.values.tokens import TokenTable


@dataclass(frozen=True, kw_only=True)
class Texts:
    """All that a listing is read of; see :func:`ratchet.dump.listing.parse`."""

    listing: str
    outline: str
    file: str
    compiler: str
    tokens: TokenTable

    def parse(self, known: Mapping[str, Instruction] | None = None) -> Listing:
        """Raises Refusal as :func:`ratchet.dump.listing.parse`, which says what is ``known``."""
        about: dict[str, Any] = {"file": self.file, "compiler": self.compiler, "tokens": self.tokens}
        return parse(self.listing, self.outline, **about, known=known)


class Ahead:
    """What was read ahead, by the name of the listing's file."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[Texts, Listing]] = {}
        self._statements: dict[str, tuple[tuple[str, TokenTable], dict[str, Instruction]]] = {}
        """By the unit's number and name: compiler and tokens, and the instructions that were read before it was known
        in which bundles they are."""
        self._looks: Counter[tuple[str, int]] = Counter()
        """At each text that is waited for, while it had a size."""

    def clear(self) -> None:
        """Forget another program's."""
        self._read.clear()
        self._statements.clear()
        self._looks.clear()

    def is_due(self, text: Path) -> bool:
        """Whether a text is complete, as far as one can see: it has grown no more since last time.

        Of a listing its outline, which is written after it. Once for a size: what does not read as it is will not the
        next time.
        """
        look = text.name, text.stat().st_size
        self._looks[look] += 1
        return look[1] > 0 and self._looks[look] == 2

    def keep(self, texts: Texts) -> None:
        """Read a listing for later. Raises Refusal as it does."""
        self._read[texts.file] = texts, texts.parse()

    def keep_statements(self, unit: str, text: str, compiler: str, tokens: TokenTable) -> None:
        """Read the instructions of a unit whose bundles are not known yet. Raises Refusal as ``read_statements``."""
        read = read_statements(text, file=unit, compiler=compiler, tokens=tokens)
        self._statements[unit] = (compiler, tokens), read

    def knows(self, unit: str) -> bool:
        """Whether a unit's instructions were read: its listing is soon read with them, once that is asked for."""
        return unit in self._statements

    def listing(self, texts: Texts, unit: str = "") -> Listing:
        """The listing that was kept of the same texts, handed out once, or else one that is read now.

        Then with what is known of the unit's instructions by their texts.
        """
        kept, listing = self._read.pop(texts.file, (None, None))
        if listing is not None and kept == texts:
            return listing
        read_with, statements = self._statements.pop(unit, (None, {}))
        return texts.parse(statements if read_with == (texts.compiler, texts.tokens) else {})
