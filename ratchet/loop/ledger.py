"""The ledger: ``results.tsv``, one line per verdict, appended and never rewritten.

UTF-8, columns separated by tabs, lines ended by a newline. The columns are the fields of ``values.Row`` in
order. Text is escaped so that a row is exactly one line: backslash, tab, newline and carriage return as
``\\\\ \\t \\n \\r``, other control characters, line separators and lone surrogates as ``\\xhh`` or ``\\uhhhh``, and a
double quote as ``\\x22`` where it opens a column, so that readers of CSV dialects see the same columns.

``previous`` holds the SHA-256 of the line before, so that an edit shows on the next line. Where two ledgers were
merged, ``chain`` says which order the file has to have. What the chain
alone cannot show, a change of the last row or rows cut off cleanly, ``log.load`` finds by comparing with git.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ratchet.process.boot import home
from ratchet.process.root import Root, Unfit
from ratchet.values import Row
from ratchet.values.status import Refusal, Status


@dataclass(frozen=True, kw_only=True)
class Link:
    """What a row comes after; hashes of lines."""

    previous: str
    own: str = ""
    """Of a merge row: the last row of the line that it was written on."""

    @property
    def line(self) -> str:
        """The row before it on its own line."""
        return self.own or self.previous


def ordered(last: str, link: Callable[[str], Link], *, root: str) -> list[str]:
    """The hashes of all rows of the file that ends with ``last``, in order; ``root`` is the header's.

    Raises:
        KeyError: ``link`` does not know a row.
    """
    placed = {root: None}
    walks = [_back(last, placed, link)]
    while walks:
        walk = walks[-1]
        if not walk:
            walks.pop()
            continue
        here = link(walk[-1])
        if here.own and here.previous not in placed:
            walks.append(_back(here.previous, placed, link))
        else:
            placed[walk.pop()] = None
    return list(placed)[1:]


def _back(last: str, placed: dict[str, None], link: Callable[[str], Link]) -> list[str]:
    """From ``last`` back along its line, up to what has its place."""
    walk = []
    while last not in placed:
        walk.append(last)
        last = link(last).line
    return walk


NAME = "results.tsv"
COLUMNS = tuple(field.name for field in fields(Row))
HEADER = "\t".join(COLUMNS)
REPAIR = f"`{home.PROGRAM} rebuild` writes it anew from git"
LEDGER_BYTES = 1 << 30
"""More than a million rows: what is larger is none of ours."""
MERGED = "merged"
"""The ``decision`` of a merge row: two ledgers became one. Its ``evidence`` is the last row of its own line."""
NOTE_CHARACTERS = 300
"""A longer message is cut in the ``note`` column, with an ellipsis; the commit has it in full."""

_SPECIAL = re.compile(r'[\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|\A"')
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|(.))", re.DOTALL)
_SHORT = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_LONG = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}
_ID_TIME = "%Y%m%d-%H%M%S"


def note(message: str) -> str:
    """The message as the ``note`` column holds it: at most ``NOTE_CHARACTERS``, cut with an ellipsis."""
    return message if len(message) <= NOTE_CHARACTERS else message[: NOTE_CHARACTERS - 1] + "…"


def utc_now() -> str:
    """The ``time`` column: UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_id(last: str = "", now: datetime | None = None) -> str:
    """An experiment id such as ``20261121-031500-1a2b``: UTC time and four hex digits, sorting after ``last``.

    Safe as a file and ref name. When the clock stops or goes back, the seconds count on from ``last``: two clones that
    go on from one row do not arrive at the same ids.
    """
    stamp = (now or datetime.now(UTC)).strftime(_ID_TIME)
    if stamp <= last[: len(stamp)]:
        with contextlib.suppress(ValueError):  # an id that was not made here
            stamp = (datetime.strptime(last[: len(stamp)], _ID_TIME) + timedelta(seconds=1)).strftime(_ID_TIME)
    return f"{stamp}-{secrets.randbelow(1 << 16):04x}"


def escape(text: str) -> str:
    """``text`` on one line and without tabs; ``unescape`` gives it back."""

    def one(match: re.Match[str]) -> str:
        character = match[0]
        code = ord(character)
        return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")

    return _SPECIAL.sub(one, text)


def unescape(text: str) -> str:
    """Undoes ``escape``.

    Raises:
        ValueError: ``text`` is not what ``escape`` writes.
    """

    if not _SPECIAL.search(text):  # as nearly all
        return text

    def one(match: re.Match[str]) -> str:
        byte, unit, letter = match.groups()
        return chr(int(byte or unit, 16)) if byte or unit else _LONG.get(letter, match[0])

    plain = _ESCAPED.sub(one, text)
    if escape(plain) != text:
        raise ValueError(f"{text[:40]!r} is not escaped as the ledger escapes text")
    return plain


def format_row(row: Row) -> str:
    """The row's line, without its newline."""
    return "\t".join(escape(getattr(row, column)) for column in COLUMNS)


def parse_row(line: str) -> Row:
    """Undoes ``format_row``.

    Raises:
        ValueError: the line has the wrong number of columns, or text that the ledger does not write.
    """
    cells = line.split("\t")
    if len(cells) != len(COLUMNS):
        raise ValueError(f"it has {len(cells)} columns, wanted {len(COLUMNS)}")
    return Row(**dict(zip(COLUMNS, map(unescape, cells), strict=True)))


def digest(line: str) -> str:
    """SHA-256 of a line without its newline, as the next row's ``previous`` holds it."""
    return hashlib.sha256(line.encode()).hexdigest()


def lines_of(data: bytes) -> list[str]:
    """The lines of a ledger that ``parse`` accepts, header included, without their newlines."""
    return data.decode().removesuffix("\n").split("\n")


@functools.lru_cache(maxsize=2)
def parse(data: bytes) -> tuple[Row, ...]:
    """The rows of a whole ledger, chain verified. A run asks several times, before and after its own row.

    Raises:
        Refusal: LEDGER_BROKEN, naming the line and what is wrong with it.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _broken(data.count(b"\n", 0, error.start) + 1, "is not UTF-8") from None
    if "\r" in text:
        at = text.count("\n", 0, text.index("\r")) + 1
        raise _broken(at, "has a carriage return: the file was converted to other line ends")
    lines = text.split("\n")
    if lines[0] != HEADER:
        raise _broken(1, f"is {lines[0][:60]!r}, wanted the header {HEADER[:60]!r}...")
    if lines.pop():
        raise _broken(len(lines) + 1, "is cut off: it does not end in a newline")
    rows: list[Row] = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            rows.append(parse_row(line))
        except ValueError as error:
            raise _broken(number, f"was edited: {error}") from None
    _check_order([digest(line) for line in lines], rows)
    ids: dict[str, int] = {}
    for number, row in enumerate(rows, start=2):
        if ids.setdefault(row.id, number) != number:
            raise _broken(number, f"repeats the id {row.id} of line {ids[row.id]}")
    return tuple(rows)


def _check_order(digests: list[str], rows: list[Row]) -> None:
    """Raises:
    Refusal: LEDGER_BROKEN where the last row wants another file than this; ``digests`` are those of all lines.
    """
    strays = [n for n, row in enumerate(rows, start=2) if row.previous != digests[n - 2]]
    merges = [n for n, row in enumerate(rows, start=2) if row.decision == MERGED]
    known = {digests[n - 1]: row for n, row in enumerate(rows, start=2)}
    for number in strays:
        if not merges or rows[number - 2].previous not in (digests[0], *known):
            what = f"does not follow line {number - 1}: one of the two was edited, or a row between removed"
            raise _broken(number, what)
    if not merges:
        return
    try:
        wanted = ordered(digests[-1], lambda one: link_of(known[one]), root=digests[0])
    except KeyError:
        raise _broken(merges[-1], "merges a row that is not here: one was edited or removed") from None
    for number, (one, other) in enumerate(zip(digests[1:], wanted, strict=False), start=2):
        if one != other:
            raise _broken(number, "is not where the merge row after it puts it: a row was moved, added or left out")
    if len(wanted) != len(rows):
        raise _broken(len(wanted) + 2, "belongs to no line that a merge row names")


def link_of(row: Row) -> Link:
    """What a row comes after."""
    return Link(previous=row.previous, own=row.evidence if row.decision == MERGED else "")


def load_bytes(path: Path) -> bytes | None:
    """The bytes of the ledger, or None if there is no such file.

    Raises:
        Refusal: LEDGER_BROKEN if it is no regular file or cannot be read.
    """
    try:
        return Root(path.parent).read(path.name, LEDGER_BYTES)
    except FileNotFoundError:
        return None
    except Unfit as error:  # a pipe, on which a reader would wait
        raise Refusal(Status.LEDGER_BROKEN, f"{error}; put the file itself there") from None
    except OSError as error:
        raise Refusal(Status.LEDGER_BROKEN, f"{path.name} cannot be read: {error.strerror}") from error


def read(path: Path) -> tuple[Row, ...]:
    """The rows of the ledger at ``path``, chain verified; none if there is no such file.

    Raises:
        Refusal: LEDGER_BROKEN, naming the line and what is wrong with it.
    """
    data = load_bytes(path)
    return () if data is None else parse(data)


@dataclass(frozen=True, kw_only=True)
class Addition:
    """What is to be appended, and to what: enough to finish a write that was cut off."""

    size_bytes: int
    """Size of the file before."""
    before: str
    """SHA-256 of the file before."""
    text: str
    """The row's line with its newline; the header as well where the file is new."""

    @property
    def line(self) -> str:
        """The row's line, without its newline."""
        return self.text.removesuffix("\n").rpartition("\n")[2]

    def fits(self, data: bytes) -> bool:
        """Whether the file that holds ``data`` is the one that this was made for, with or without what is appended."""
        before = hashlib.sha256(data[: self.size_bytes]).hexdigest()
        return before == self.before and self.text.encode().startswith(data[self.size_bytes :])


def addition(data: bytes | None, row: Row) -> Addition:
    """The append of ``row``, its ``previous`` filled in, to a ledger with the bytes ``data`` (None: no file yet).

    Raises:
        Refusal: LEDGER_BROKEN if ``data`` is not a whole ledger.
    """
    before = data or b""
    last, text = HEADER, HEADER + "\n"
    if data is not None:
        parse(data)
        last, text = lines_of(data)[-1], ""
    text += format_row(replace(row, previous=digest(last))) + "\n"
    return Addition(size_bytes=len(before), before=hashlib.sha256(before).hexdigest(), text=text)


def write(path: Path, added: Addition) -> None:
    """Appends with one write and flushes file and folder to the disk. Calling it again changes nothing.

    A write that was cut off by a kill is completed; one that fails is taken back, so that never half a row stays.

    Raises:
        Refusal: LEDGER_BROKEN if the file is not the one the addition was made for, LEDGER_UNWRITABLE, NO_SPACE.
    """
    content, wanted = load_bytes(path) or b"", added.text.encode()
    there = content[added.size_bytes :]
    if not added.fits(content):
        raise Refusal(Status.LEDGER_BROKEN, f"{path.name} changed while a row was being appended: {REPAIR}")
    with writing(path.name), Root(path.parent).changed(path.name, append=True) as descriptor:
        rest = wanted[len(there) :]
        try:
            if rest and os.write(descriptor, rest) != len(rest):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, added.size_bytes)
            raise
        Root(path.parent).flush(".")


def append(path: Path, row: Row) -> Row:
    """Appends ``row`` to the ledger at ``path`` and returns it as written, ``previous`` filled in.

    Raises:
        Refusal: LEDGER_BROKEN, LEDGER_UNWRITABLE, NO_SPACE; the file is then as it was.
    """
    added = addition(load_bytes(path), row)
    write(path, added)
    return parse_row(added.line)


def check_writable(path: Path) -> None:
    """Raises:
    Refusal: LEDGER_UNWRITABLE if a row could not be appended.
    """
    root = Root(path.parent)
    with writing(path.name):
        if root.exists(path.name):
            with root.changed(path.name, append=True):
                return
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Turns the errors of writing files into refusals that name ``what``.

    Raises:
        Refusal: NO_SPACE or LEDGER_UNWRITABLE.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise Refusal(Status.NO_SPACE, f"no space left to write {what}: free some and run again") from error
        raise Refusal(
            Status.LEDGER_UNWRITABLE, f"{what} cannot be written: {error.strerror}; make it writable"
        ) from error


def _broken(line: int, what: str) -> Refusal:
    return Refusal(Status.LEDGER_BROKEN, f"{NAME} line {line} {what}; {REPAIR}")
