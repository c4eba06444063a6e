"""What may stand in a source file: only what a reader, ``git diff`` and Python read alike. Pure.

Python takes an encoding from a comment, ends lines at a lone carriage return and compares identifiers after NFKC;
editors and diffs do none of that, and show neither the order of bidirectional text nor characters without a width.
"""

from __future__ import annotations

import io
import re
import tokenize
import unicodedata
from collections.abc import Iterator

from ratchet.values.status import Refusal, Status

_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
"""PEP 263: how a comment in one of the first two lines declares an encoding."""
_UTF8 = (b"utf-8", b"utf8")
_PLAIN = bytes([*b"\n\t", *range(0x20, 0x7F)])
_SEPARATORS = ("Zl", "Zp")
"""U+2028 and U+2029: line ends to some readers, and not to Python."""
_BLANK = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)
"""Fillers and selectors: letters and marks to Unicode, and nothing on a screen."""
_EMOJI = "\ufe0f"
"""Asks for the coloured form of the symbol before it."""
_GREEK = frozenset("βγδεζηθλμξπσςτφψωΓΔΘΛΞΠΣΦΨΩ")
"""Letters of formulas that no letter of ASCII looks like."""
_RULE = "what is read has to be what runs"
_MOST = 3


def text_of(source: bytes, name: str) -> str:
    """The text of a Python file, as it is shown and as it runs.

    Raises:
      Refusal: ``SYNTAX_ERROR`` for what is not UTF-8; ``FORBIDDEN`` with line and character for another declared
        encoding, control, bidirectional and invisible characters, line ends of more than one kind, and identifiers that
        look like others.
    """
    for number, line in enumerate(source.split(b"\n", 2)[:2], 1):
        declared = _COOKIE.match(line)
        if declared and declared[1].lower().replace(b"_", b"-") not in _UTF8:
            where = f"{name}:{number}: the encoding {declared[1].decode(errors='replace')!a:.40} is declared"
            raise Refusal(Status.FORBIDDEN, f"{_RULE}: {where}; wanted UTF-8, which needs no declaration")
    try:
        text = source.decode()
    except UnicodeDecodeError as error:
        at = source.count(b"\n", 0, error.start) + 1
        message = f"{name}:{at}: byte {source[error.start]:#04x} is not UTF-8: save the file in UTF-8"
        raise Refusal(Status.SYNTAX_ERROR, message) from None
    if not source.translate(None, _PLAIN):
        return text
    if text.count("\r") == text.count("\r\n") == text.count("\n"):
        text = text.replace("\r\n", "\n")
    found = [*_characters(text), *_identifiers(text, name)]
    if found:
        more = f" (and {len(found) - _MOST} more)" if len(found) > _MOST else ""
        lines = "; ".join(f"{name}:{line}: {what}" for line, what in found[:_MOST])
        raise Refusal(Status.FORBIDDEN, f"{_RULE}: {lines}{more}")
    return text


def _characters(text: str) -> Iterator[tuple[int, str]]:
    """Lines and names of characters that are not shown, or that are shown elsewhere than they are."""
    line, before = 1, ""
    for one in text:
        kind = unicodedata.category(one)
        if one == "\n":
            line += 1
        elif one == "\r":
            yield line, "a carriage return; wanted \\n after every line, or \\r\\n after every line"
        elif one == _EMOJI and unicodedata.category(before or "\n") == "So":
            pass
        elif one != "\t" and (kind[0] == "C" or kind in _SEPARATORS or one in _BLANK):
            yield line, f"U+{ord(one):04X} ({unicodedata.name(one, 'a control character')}) cannot be seen: remove it"
        before = one


def _identifiers(text: str, name: str) -> Iterator[tuple[int, str]]:
    """Lines of identifiers that Python reads as others, or that can be taken for others. Raises as ``text_of``."""
    if text.isascii():
        return
    try:
        words = {word: line for line, word in reversed([*_words(text)]) if not word.isascii()}
    except (tokenize.TokenError, SyntaxError) as error:
        raise Refusal(Status.SYNTAX_ERROR, f"{name}: {error.args[0]}") from None
    for word, line in words.items():
        read = unicodedata.normalize("NFKC", word)
        odd = [one for one in word if not _distinct(one)]
        if read != word:
            yield line, f"Python reads the identifier {word!a} as {read!a}: write that"
        elif odd:
            yield line, f"{odd[0]!a} in the identifier {word!a} is easily taken for another: spell it in ASCII"


def _words(text: str) -> Iterator[tuple[int, str]]:
    """Identifiers with their lines; an accent of its own, which `tokenize` cannot read, is of the word before it."""
    word, end = "", (1, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NAME, tokenize.ERRORTOKEN):
            word, end = (word if token.start == end else "") + token.string, token.end
            yield token.start[0], word


def _distinct(letter: str) -> bool:
    """Whether nobody takes a letter for one of ASCII: accents of Latin-1, Greek of formulas, and wide scripts."""
    wide = unicodedata.east_asian_width(letter) == "W"
    return letter.isascii() or "\u00c0" <= letter <= "\u00ff" or letter in _GREEK or wide
