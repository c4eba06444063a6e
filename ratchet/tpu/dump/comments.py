"""Comments of a listing: set aside before anything else is read, and what they say made into values. Pure.

Comments nest. A location holds the name of a source file in quotes, which is read whole: whatever a file is called,
it neither ends a comment nor begins one. Operand markers (``/*hbm=*/``) become part of the operand (``hbm=``).
"""

from __future__ import annotations

import re
from dataclasses import replace

from ratchet.tpu.dump.instruction import NO_NOTES, Notes, Source
from ratchet.values.tokens import TokenTable

BEGIN, END = "\x01", "\x02"
"""Around the number of a comment that was set aside. The compiler escapes such characters in names."""

_COMMENT = re.compile(r'/\*(\w+=)\*/|/\*( loc\("(?:[^"\\\n]|\\.)*":[\d:to )(]*) \*/|(/\*|\*/)')
_LOCATED, _NAMED = ' loc("', re.compile(r' loc\("(?:[^"\\\n]|\\.)*"')
"""How a comment begins that names a source file, and one in which that name ends too; without ``/*``."""
_LOCATION = re.compile(r'loc\("((?:[^"\\\n]|\\.)*)":(\d{1,9})(?::(\d{1,9}))?')
_CALLED = re.compile(r"%?([\w.\-]+)(?: = |$)|<([\w.\-]+)>$")
_LAUNCH_WAITS = ("global-barrier-wait", "enhanced-barrier-wait")
_RESULTS = {"kDiv": "quotient", "kRem": "remainder", "kDivAndRem": "both"}
_ASSERTIONS = (("BoundsCheck", "bounds"), ("has a nonzero value upon exit", "semaphore"))


class BadComment(ValueError):
    """A comment that never ends or never began."""


def set_aside(body: str) -> tuple[str, list[str]]:
    """Replaces each outermost comment by a number between :data:`BEGIN` and :data:`END`; returns text and comments.

    Raises:
        BadComment: for comments that do not pair up.
    """
    if BEGIN in body or END in body:
        raise BadComment("a control character in the text")
    return _by_pieces(body) or _by_tokens(body)


def _by_pieces(body: str) -> tuple[str, list[str]] | None:
    """As ``set_aside``, where cutting at each begin of a comment gives the same; None where it may not.

    Hundreds of thousands of comments say a thousand different things, so that each is looked at once.
    """
    first, *pieces = body.split("/*")
    # Begins and ends pair up, and none shares a character with another. Then an end too many in one place is one that
    # lacks in another, where a comment does not end: that is all there is to look for.
    if body.count("*/") != len(pieces) or "*/*" in body or "/*/" in body:
        return None
    kept, notes = [first], list[str]()
    marks: dict[str, str] = {}
    held: list[str] = []  # pieces of a comment in which another began
    for piece in pieces:
        if held or "*/" not in piece:
            held.append(piece)
            whole = "/*".join(held)
            if whole.count("*/") < len(held):
                continue
            comment, _, text = whole.rpartition("*/")
            held = []
        else:
            comment, _, text = piece.partition("*/")
        mark = marks.get(comment)
        if mark is None:
            mark = marks[comment] = _mark(comment, notes)
            if not mark:
                return None
        kept.append(mark)
        kept.append(text)
    return None if held else ("".join(kept), notes)


def _mark(comment: str, notes: list[str]) -> str:
    """What stands for a comment, or ``""`` where the text behind may be part of it. Adds what it says to ``notes``."""
    if any(piece.startswith(_LOCATED) and not _NAMED.match(piece) for piece in comment.split("/*")):
        return ""
    mark, said = _by_tokens(f"/*{comment}*/")
    if said and mark != f"{BEGIN}0{END}":
        return ""
    notes += said
    return f"{BEGIN}{len(notes) - 1}{END}" if said else mark


def _by_tokens(body: str) -> tuple[str, list[str]]:  # noqa: C901, PLR0912 - one pass over megabytes, one state
    """As ``set_aside``, begin by begin and end by end."""
    kept: list[str] = []
    notes: list[str] = []
    marks: dict[str, str] = {}
    depth = 0
    inner: list[str] = []
    pieces = _COMMENT.split(body)
    kept.append(pieces[0])
    for marker, location, delimiter, text in zip(pieces[1::4], pieces[2::4], pieces[3::4], pieces[4::4], strict=True):
        if depth:
            if marker is not None:
                inner.append(marker)
            elif location is not None:
                inner.append(f"/*{location} */")
            elif delimiter == "/*":
                depth += 1
                inner.append(delimiter)
            else:
                depth -= 1
                if depth:
                    inner.append(delimiter)
                else:
                    location = "".join(inner)  # noqa: PLW2901
                    inner.clear()
            if depth:
                inner.append(text)
                continue
        elif marker is not None:
            kept.append(marker)
            kept.append(text)
            continue
        elif delimiter == "/*":
            depth = 1
            inner.append(text)
            continue
        elif delimiter is not None:
            raise BadComment("a comment ends that never began")
        mark = marks.get(location)
        if mark is None:
            mark = marks[location] = f"{BEGIN}{len(notes)}{END}"
            notes.append(location.strip())
        kept.append(mark)
        kept.append(text)
    if depth:
        raise BadComment("a comment never ends: the dump is cut off")
    return "".join(kept), notes


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
