"""Listings that are read while the compiler still works: that of a large kernel takes a second or two to read.

What was read ahead counts only where its texts are what the program's dumps turn out to be.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ratchet.tpu.dump.listing import Listing, parse
from ratchet.values.tokens import TokenTable


@dataclass(frozen=True, kw_only=True)
class Texts:
    """All that a listing is read of; see :func:`ratchet.tpu.dump.listing.parse`."""

    listing: str
    outline: str
    file: str
    compiler: str
    tokens: TokenTable

    def parse(self) -> Listing:
        """Raises Refusal as :func:`ratchet.tpu.dump.listing.parse`."""
        return parse(self.listing, self.outline, file=self.file, compiler=self.compiler, tokens=self.tokens)


class Ahead:
    """What was read ahead, by the name of the listing's file."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[Texts, Listing]] = {}
        self._looks: Counter[tuple[str, int]] = Counter()
        """At each text that is waited for, while it had a size."""

    def clear(self) -> None:
        """Forget another program's."""
        self._read.clear()
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
        """Read a listing for later, with its columns. Raises Refusal as it does."""
        listing = texts.parse()
        self._read[texts.file] = texts, listing
        _ = listing.columns  # computed once

    def listing(self, texts: Texts) -> Listing:
        """The listing that was kept of the same texts, handed out once, or else one that is read now."""
        kept, listing = self._read.pop(texts.file, (None, None))
        return listing if listing is not None and kept == texts else texts.parse()
