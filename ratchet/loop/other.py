"""The line of another clone as it was fetched: its rows, checked against their own chain and what git holds of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from ratchet.loop import ledger
from ratchet.loop.history import History
from ratchet.loop.lineage import following
from ratchet.loop.origin import origin
from ratchet.loop.refs import EXPERIMENTS, MACS, ROWS, tip_ref
from ratchet.loop.remotes import FETCHED, Fetched
from ratchet.process import key, paths
from ratchet.process.root import is_of_git
from ratchet.values import Decision, Row
from ratchet.values.row import Origin
from ratchet.values.status import Refusal, Status

_LEDGER_BYTES = 256 << 20
_CELL = 4000
"""Characters of a cell; a note has 300 at most, a reason names a few files."""
_NUMBERS = (
    *("score", "median_ms", "util_pct", "tflops", "bw_util_pct", "vmem_bytes", "spills", "wait_ms", "band_low_ms"),
    *("band_high_ms", "modelled_ms", "speedup", "speedup_low", "speedup_high", "launches", "samples", "seconds"),
)
_DECISIONS = (Decision.KEPT, Decision.REVERTED, Decision.BASELINE, Decision.JUDGED, ledger.MERGED)
_FORMS = {
    **dict.fromkeys(("commit", "kernel_blob"), "[0-9a-f]{40}|[0-9a-f]{64}"),
    "parent": "|[0-9a-f]{40}|[0-9a-f]{64}",
    **dict.fromkeys(_NUMBERS, r"|inf|[0-9]{1,20}(\.[0-9]{1,25})?(e[+-]?[0-9]{1,3})?"),
    **dict.fromkeys(("seal", "problem", "previous"), "[0-9a-z]{0,64}"),
    "id": "[0-9]{8}-[0-9]{6}-[0-9a-f]{4}",
    "time": "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z",
    "status": "|".join(Status.__members__),
    "decision": "|".join(_DECISIONS),
}
"""What the columns of another clone's row may hold: names of files and refs are made of some, and numbers are read."""


@dataclass(frozen=True, kw_only=True)
class Other:
    """A line of another clone."""

    name: str
    """What a row may call it: a remote's name, or the last part of its address. No user, password or folder."""
    commit: str
    lines: tuple[str, ...]
    """Of its ledger, with the header."""
    rows: tuple[Row, ...]
    macs: Mapping[str, str]
    """By id."""
    refs: Mapping[str, str]
    """Objects by the full name of the ref that they have there: rows, MACs and commits of experiments."""

    def is_own(self, number: int) -> bool:
        """Whether this machine's key made row ``number``."""
        own = key.known()
        row = self.rows[number]
        return own is not None and origin(own, self.lines[number + 1], self.macs.get(row.id)) is Origin.HERE


def read(history: History, fetched: Fetched, source: str) -> Other:
    """What was fetched from ``source``.

    Raises:
        Refusal: LEDGER_BROKEN where its rows do not follow each other, or are not as its git holds them.
    """
    name = _called(source)
    entry = history.objects.entry(fetched.commit, ledger.NAME)
    if entry and (size := history.objects.size(entry.blob)) > _LEDGER_BYTES:
        raise _broken(name, f"it has {size} bytes, at most {_LEDGER_BYTES} are read")
    data = history.objects.blob(entry.blob) if entry else f"{ledger.HEADER}\n".encode()
    stored = history.refs.texts(_there(ROWS))
    tip = history.refs.texts(_there(tip_ref(fetched.branch)))
    try:
        ledger.parse(data)
        lines = ledger.lines_of(data)
        further, loose = following(lines, next(iter(tip.values()), None), stored.values())
        rows = ledger.parse("".join(f"{line}\n" for line in lines + further).encode())
    except Refusal as refusal:
        raise _broken(name, refusal.message.removesuffix(f"; {ledger.REPAIR}")) from None
    except ValueError as error:
        raise _broken(name, f"its git holds a row that is none: {error}") from None
    if loose:
        raise _broken(name, f"row {loose[-1]}, its last, does not follow from the ledger of its branch")
    lines += further
    if fetched.is_head:
        _check_file(Path(source) / ledger.NAME, name, lines)
    other = Other(
        name=name,
        commit=fetched.commit,
        lines=tuple(lines),
        rows=rows,
        macs=history.refs.texts(_there(MACS)),
        refs=_refs(history, {row.id for row in rows}),
    )
    for number, row in enumerate(rows):
        _check_row(history, other, row, lines[number + 1], stored.get(row.id))
    return other


def _there(ref: str) -> str:
    return FETCHED + ref.removeprefix("refs/ratchet/")


def _refs(history: History, ids: set[str]) -> dict[str, str]:
    return {
        prefix + name: target
        for prefix in (ROWS, MACS, EXPERIMENTS)
        for name, target in history.refs.under(_there(prefix)).items()
        if name in ids
    }


def _strange(row: Row) -> str:
    """What of a row no run of this tool writes, in words; ``""`` where nothing."""
    for column, text in asdict(row).items():
        if len(text) > _CELL or not re.fullmatch(_FORMS.get(column, "(?s:.*)"), text):
            return f"{text!r:.80} as its {column}"
    path = PurePosixPath(row.kernel)
    if path.is_absolute() or ".." in path.parts or str(path) != row.kernel or not row.kernel.isprintable():
        return f"{row.kernel!r:.80} as its kernel, which is no path in a repository"
    return f"{row.kernel!r:.80} as its kernel, a file of git's" if is_of_git(row.kernel) else ""


def _check_row(history: History, other: Other, row: Row, line: str, stored: str | None) -> None:
    if strange := _strange(row):
        raise _broken(other.name, f"row {row.id!r:.40} has {strange}")
    if stored not in (None, line):
        raise _broken(other.name, f"row {row.id} differs from the row that its git holds")
    own, mac = key.known(), other.macs.get(row.id)
    if own is not None and origin(own, line, mac) is Origin.FORGED:
        raise _broken(other.name, f"row {row.id} names this machine's key, which did not sign it")
    commit = other.refs.get(EXPERIMENTS + row.id)
    if commit is None:
        return
    if commit != row.commit:
        raise _broken(other.name, f"the ref of experiment {row.id} does not name its commit")
    entry = history.objects.entry(row.commit, row.kernel)
    if entry is None or entry.blob != row.kernel_blob:
        raise _broken(other.name, f"{row.kernel} in commit {row.commit[:10]} is not what row {row.id} says was judged")


def _check_file(path: Path, name: str, lines: Sequence[str]) -> None:
    """The ledger in the folder of another clone, where this is one: it may have grown since, and nothing else."""
    if not paths.is_file(path):
        return
    data = ledger.load_bytes(path) or b""
    if not data.startswith("".join(f"{line}\n" for line in lines).encode()):
        raise _broken(name, f"its {ledger.NAME} was edited, cut off or replaced")


def _called(source: str) -> str:
    last = os.path.basename(os.path.realpath(source)) if paths.is_folder(Path(source)) else source.rstrip("/")
    return last.rpartition("/")[2].rpartition(":")[2].rpartition("@")[2].removesuffix(".git") or "the other line"


def _broken(name: str, what: str) -> Refusal:
    return Refusal(
        Status.LEDGER_BROKEN, f"the ledger of {name!r:.100} is broken: {what}; repair it there first (verify, rebuild)"
    )
