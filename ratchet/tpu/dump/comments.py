"""Comments of a listing: set aside before anything else is read, and what they say made into values. Pure.

Comments nest. A location holds the name of a source file in quotes, which is read whole: whatever a file is called,
it neither ends a comment nor begins one. Operand markers (``/*hbm=*/``) become part of the operand (``hbm=``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ratchet.tpu.dump.instruction import NO_NOTES, Notes, Source
from ratchet.values.tokens import TokenTable

BEGIN, END = "\x01", "\x02"
"""Around the number of a comment that was set aside. The compiler escapes such characters in names."""

_COMMENT = re.compile(r'(/\*\w+=\*/|/\* loc\("(?:[^"\\\n]|\\.)*":[\d:to )(]* \*/|/\*|\*/)')
"""An operand marker, a whole location, and where other comments begin and end."""
_LOCATION = re.compile(r'loc\("((?:[^"\\\n]|\\.)*)":(\d{1,9})(?::(\d{1,9}))?')
_CALLED = re.compile(r"%?([\w.\-]+)(?: = |$)|<([\w.\-]+)>$")
_LAUNCH_WAITS = ("global-barrier-wait", "enhanced-barrier-wait")
_RESULTS = {"kDiv": "quotient", "kRem": "remainder", "kDivAndRem": "both"}
_ASSERTIONS = (("BoundsCheck", "bounds"), ("has a nonzero value upon exit", "semaphore"))


class BadComment(ValueError):
    """A comment that never ends or never began."""


def set_aside(body: str) -> tuple[str, list[str]]:
    """Replaces each outermost comment by a number between :data:`BEGIN` and :data:`END`; returns text and comments.

    Hundreds of thousands of comments say a thousand different things: those that say the same share a number.

    Raises:
        BadComment: for comments that do not pair up.
    """
    if BEGIN in body or END in body:
        raise BadComment("a control character in the text")
    numbers: dict[str, int] = {}
    kept = [
        f"{BEGIN}{numbers.setdefault(piece, len(numbers))}{END}" if is_comment else piece
        for piece, is_comment in _pieces(body)
    ]
    return "".join(kept), [comment.strip() for comment in numbers]


def _pieces(body: str) -> Iterator[tuple[str, bool]]:
    """Texts and outermost comments, which are True, in order. Raises BadComment."""
    first, *pieces = _COMMENT.split(body)
    yield first, False
    inner, depth = list[str](), 0
    for piece, text in zip(pieces[::2], pieces[1::2], strict=True):
        if piece == "*/":
            depth -= 1
            if depth < 0:
                raise BadComment("a comment ends that never began")
            if not depth:
                yield "".join(inner), True
                inner.clear()
        said = piece[2:-2] if piece.endswith("=*/") else piece  # an operand marker is text
        if depth:
            inner.append(said)
        elif len(piece) > 2:
            yield piece[2:-2], said is piece
        depth += piece == "/*"
        if depth:
            inner.append(text)
        else:
            yield text, False
    if depth:
        raise BadComment("a comment never ends: the dump is cut off")


def read_notes(comments: tuple[str, ...]) -> Notes:
    """What the comments of one instruction say together."""
    if not comments:
        return NO_NOTES
    called = _CALLED.match(comments[0])
    text = " ".join(comments)
    return Notes(
        source=next((source for comment in comments if (source := read_source(comment))), None),
        called=(called[1] or f"<{called[2]}>") if called else "",
        assertion=next((kind for part, kind in _ASSERTIONS if part in text), "unknown"),
        text=text,
        heads_pipeline="iteration index, stage" in text,
        results=next((_RESULTS[last] for comment in comments if (last := comment.split(" :: ")[-1]) in _RESULTS), ""),
        waits_for_launch=any(comment in _LAUNCH_WAITS for comment in comments),
    )


def read_source(comment: str) -> Source | None:
    """The place that a location names, or None for another comment."""
    match = _LOCATION.match(comment)
    return Source(file=match[1], line=int(match[2]), column=int(match[3] or 0)) if match else None


def explained(notes: Notes, tokens: TokenTable) -> Notes:
    """The notes of a program that was compiled with tokens, with its author's place and names in them.

    What the comments mean is decided before: no name of an author's can look like a comment of the compiler's.
    Code that a library made for the author, such as the copies of ``emit_pipeline``, has the place of the call.
    """
    operation = notes.source.line if notes.source else -1
    place = tokens.nearest(operation)
    source = Source(file=place[0], line=place[1], column=place[2], operation=operation) if place else None
    return replace(notes, source=source, text=tokens.explain(notes.text))
