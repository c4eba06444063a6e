"""Which rows of git's belong to one line: those of its commit's ledger, then those that lead to its tip."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ratchet.loop import ledger
from ratchet.loop.checks import Head
from ratchet.loop.history import History
from ratchet.loop.ledger import Link, ordered


def following(lines: Sequence[str], tip: str | None, stored: Collection[str]) -> tuple[list[str], tuple[str, ...]]:
    """The lines that follow ``lines``, a ledger with its header, up to ``tip``; and ids of rows that do not connect.

    ``stored`` are the lines that git holds, of all branches. Where no tip is known, rows are followed for as long as
    just one comes next.
    """
    known = {ledger.digest(line): line for line in (*stored, *lines, *([tip] if tip else []))}
    if tip is None:
        return _forward(lines, known), ()
    if tip in lines:
        return [], ()
    whole = _file(tip, known, lines[0])
    if whole[: len(lines)] == list(lines):
        return whole[len(lines) :], ()
    return [], _dangling(tip, known, lines)


def of_branch(history: History, head: Head, stored: Collection[str]) -> list[str]:
    """The lines of a branch's ledger, header included, as git has them; what does not connect is left out.

    ``stored`` are the lines that git holds, of all branches.

    Raises:
        Refusal: LEDGER_BROKEN if the ledger of its commit is.
    """
    entry = history.objects.entry(head.commit, ledger.NAME)
    data = history.objects.blob(entry.blob) if entry else f"{ledger.HEADER}\n".encode()
    ledger.parse(data)
    lines = ledger.lines_of(data)
    return lines + following(lines, history.refs.tip(head.branch), stored)[0]


def _link(known: dict[str, str], digest: str) -> Link:
    return ledger.link_of(ledger.parse_row(known[digest]))


def _file(tip: str, known: dict[str, str], header: str) -> list[str]:
    """The whole file that ends with ``tip``; nothing where a row of it is not here."""
    try:
        order = ordered(ledger.digest(tip), lambda one: _link(known, one), root=ledger.digest(header))
    except (KeyError, ValueError):  # or what git holds is no row
        return []
    return [header, *(known[one] for one in order)]


def _forward(lines: Sequence[str], known: dict[str, str]) -> list[str]:
    after: dict[str, list[str]] = {}
    for digest, line in known.items():
        if digest != ledger.digest(lines[0]):
            after.setdefault(_link(known, digest).line, []).append(line)
    last = lines[-1]
    while len(next_one := after.get(ledger.digest(last), [])) == 1:
        last = next_one[0]
    return [] if last == lines[-1] else _file(last, known, lines[0])[len(lines) :]


def _dangling(tip: str, known: dict[str, str], lines: Sequence[str]) -> tuple[str, ...]:
    """Ids from the tip back to where its line ends, or meets ``lines``."""
    there = {ledger.digest(line) for line in lines}
    backward = [tip]
    while (before := ledger.link_of(ledger.parse_row(backward[-1])).line) in known and before not in there:
        backward.append(known[before])
    return tuple(ledger.parse_row(line).id for line in reversed(backward))
