"""The judge's tokens for the author's names and source places, and the table that maps them back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

TOKENS_FILE = "tokens.json"
"""The table's file, beside the dumps of the program that it belongs to."""
SOURCE_FILE = "t"
"""File name of every token: ``"t":17:1`` in the compiler's texts is operation 17 of the table."""

_SOURCE = re.compile(rf'"?\b{SOURCE_FILE}"?:(\d+)(?::\d+(?: to (?:\d+)?:\d+)?)?')
_NAME = re.compile(r"\b([a-z]+_\d+)\b")

Source = tuple[str, int, int]
"""File, line and column, both from 1 on."""


@dataclass(frozen=True, kw_only=True)
class TokenTable:
    """What stood in the author's program where the compiled one has tokens. Names and files are untrusted text."""

    sources: tuple[Source | None, ...] = ()
    """Per operation, by number; None for an operation without a source place."""
    around: tuple[int, ...] = ()
    """Per operation, the number of the one that it is inside of; -1 for the outermost."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Token of a kernel, function, operation or message to what the author called it."""

    def source(self, token: int) -> Source | None:
        """File, line and column of operation ``token``; None where it has none or the table lacks it."""
        return self.sources[token] if 0 <= token < len(self.sources) else None

    def nearest(self, token: int) -> Source | None:
        """The place of operation ``token``, or of the innermost one around it that has a place."""
        while (place := self.source(token)) is None and 0 <= token < len(self.around):
            token = self.around[token]
        return place

    def name(self, token: str) -> str:
        """The author's name for a token, also for one that the compiler numbered (``k_0.3``); else ``token`` itself."""
        stem, dot, number = token.partition(".")
        return f"{self.names[stem]}{dot}{number}" if stem in self.names else token

    def explain(self, text: str) -> str:
        """``text`` of the compiler, say an error, with the author's names and places in it."""

        def source(match: re.Match[str]) -> str:
            place = self.nearest(int(match[1]))
            return "{}:{}:{}".format(*place) if place else "a place without a source line"

        return _NAME.sub(lambda match: self.names.get(match[1], match[1]), _SOURCE.sub(source, text))


NO_TOKENS = TokenTable()
"""Of a program that was compiled as its author wrote it."""


def encode(table: TokenTable) -> str:
    """The table as JSON text."""
    return json.dumps({"sources": table.sources, "around": table.around, "names": dict(table.names)})


def decode(text: str) -> TokenTable:
    """Reads what :func:`encode` wrote.

    Raises:
        ValueError: ``text`` is something else, or an operation is inside of one that begins after it.
    """
    try:
        record = json.loads(text)
        table = TokenTable(
            sources=tuple((str(s[0]), int(s[1]), int(s[2])) if s else None for s in record["sources"]),
            around=tuple(map(int, record["around"])),
            names={str(token): str(name) for token, name in record["names"].items()},
        )
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    if any(outer >= number for number, outer in enumerate(table.around)):
        raise ValueError("an operation is inside of a later one")
    return table
