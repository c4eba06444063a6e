"""Reading the ledger: its rows, one row, whether it is whole beside git, and writing it anew from git."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ratchet.loop import joined, journal, ledger, state
from ratchet.loop.checks import Head
from ratchet.loop.history import History
from ratchet.loop.ledger import REPAIR
from ratchet.loop.lineage import following
from ratchet.loop.origin import origins
from ratchet.loop.refs import EXPERIMENTS, MACS, REPLACED, ROWS, tip_ref
from ratchet.loop.workspace import locked
from ratchet.process import key
from ratchet.process.boot import home
from ratchet.values import Row
from ratchet.values.row import Origin, Origins
from ratchet.values.status import Refusal, Status

FETCH = "git fetch REMOTE 'refs/ratchet/*:refs/ratchet/*'"


def rows(root: Path) -> tuple[Row, ...]:
    """All rows of the repository at ``root``, oldest first.

    Raises:
        Refusal: LEDGER_BROKEN.
    """
    return ledger.read(root / ledger.NAME)


def experiments(root: Path) -> tuple[str, ...]:
    """The ids of all experiments, oldest first: those with rows, and those that git knows to have begun.

    Left out are those that may still be under way: without a row, and begun less than a day ago.

    Raises:
        Refusal: LEDGER_BROKEN, NOT_A_REPOSITORY.
    """
    recorded = {row.id for row in rows(root)}
    yesterday = ledger.new_id(now=datetime.now(UTC) - timedelta(days=1))
    begun = {name for name in History(root).refs.under(EXPERIMENTS) if name < yesterday}
    return tuple(sorted(recorded | begun))


def find(root: Path, name: str) -> Row:
    """The row whose id is or begins with ``name``, or else the newest whose commit begins with it.

    Raises:
        Refusal: NOT_FOUND, also where ``name`` fits several ids; LEDGER_BROKEN.
    """
    known = rows(root)
    fitting = [row for row in known if name and row.id.startswith(name)]
    exact = [row for row in fitting if row.id == name]
    commits = [row for row in known if len(name) >= 4 and row.commit.startswith(name)]
    if len(exact or fitting) == 1:
        return (exact or fitting)[0]
    if fitting:
        message = f"{name!r} fits {len(fitting)} rows, from {fitting[0].id} to {fitting[-1].id}: give more of the id"
        raise Refusal(Status.NOT_FOUND, message)
    if commits:
        return commits[-1]
    raise Refusal(Status.NOT_FOUND, f"no row has the id or commit {name!r}: `{home.PROGRAM} log` lists them")


def load(history: History, head: Head) -> tuple[Row, ...]:
    """The rows, after checking the ledger against its own chain, HEAD's copy and the last row written here.

    Raises:
        Refusal: LEDGER_BROKEN.
    """
    tip = history.refs.tip(head.branch)  # before the file, which may grow meanwhile
    committed = _committed(history, head)
    data = ledger.load_bytes(history.root / ledger.NAME)
    if data is None:
        if committed is not None or tip is not None:
            raise Refusal(Status.LEDGER_BROKEN, f"{ledger.NAME} is missing, but git knows of rows: {REPAIR}")
        return ()
    known = ledger.parse(data)
    if committed is not None and not data.startswith(committed):
        there, here = committed.split(b"\n"), data.split(b"\n")
        number = next((n for n, (a, b) in enumerate(zip(there, here, strict=False), 1) if a != b), len(here))
        message = f"{ledger.NAME} line {number} differs from HEAD's: it was edited or removed; {REPAIR}"
        raise Refusal(Status.LEDGER_BROKEN, message)
    if tip is not None and tip not in ledger.lines_of(data):
        name = ledger.parse_row(tip).id
        what = "was edited" if any(row.id == name for row in known) else "is missing: the ledger was cut off"
        raise Refusal(
            Status.LEDGER_BROKEN, f"{ledger.NAME}: the row {name}, the last written on this branch, {what}; {REPAIR}"
        )
    return known


def put_back(history: History, head: Head) -> str:
    """Puts rows back that a stash, a checkout or a reset took from the ledger; what to say of it, or ``""``.

    They are taken back where the file is the beginning of what git holds of this branch. Anything else in it was
    edited, and stays as it is: ``load`` refuses it. The caller holds the lock.

    Raises:
        Refusal: LEDGER_BROKEN if HEAD's own ledger is; LEDGER_UNWRITABLE, NO_SPACE.
    """
    here = ledger.load_bytes(history.root / ledger.NAME) or b""
    if not _lacks_rows(history, head):
        return ""
    committed = _committed(history, head) or f"{ledger.HEADER}\n".encode()
    ledger.parse(committed)
    lines = ledger.lines_of(committed)
    further, left_out = following(lines, history.refs.tip(head.branch), history.refs.texts(ROWS).values())
    whole = "".join(f"{line}\n" for line in lines + further).encode()
    if left_out or not whole.startswith(here) or (here and not here.endswith(b"\n")):
        return ""
    count = len(ledger.parse(whole)) - max(here.count(b"\n") - 1, 0)
    history.files.write(ledger.NAME, whole)
    said = f"{ledger.NAME} had lost {count} row{'s' * (count != 1)}, as to a stash, checkout or reset: back from git"
    pop = f"; before a `git stash pop`: `git checkout {ledger.NAME}`" if history.refs.resolve("refs/stash") else ""
    return said + pop


def put_back_alone(root: Path) -> str:
    """``put_back`` for who is about to read, where no run holds the lock or was cut off.

    Whatever keeps it from that is no failure: who reads says what is wrong.
    """
    with contextlib.suppress(Refusal):
        history = History(root)
        head = history.checks.head()
        if _lacks_rows(history, head) and not (journal.unfinished(history) or joined.unfinished(history)):
            with locked(history, message="put rows back", wait_s=0, progress=lambda _: None):
                return put_back(history, head)
    return ""


def _lacks_rows(history: History, head: Head) -> bool:
    """Whether the ledger has not the last row that was written on this branch, or not all that HEAD's has."""
    tip, committed = history.refs.tip(head.branch), _committed(history, head)
    here = ledger.load_bytes(history.root / ledger.NAME) or b""
    return (tip is not None and f"{tip}\n".encode() not in here) or not here.startswith(committed or b"")


def last_id(known: tuple[Row, ...]) -> str:
    """The id that sorts last among ``known``, or ``""``."""
    return max((row.id for row in known), default="")


def _committed(history: History, head: Head) -> bytes | None:
    entry = history.objects.entry(head.commit, ledger.NAME)
    return history.objects.blob(entry.blob) if entry else None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that ``verify`` has to say."""

    broken: bool
    """False for what a fresh clone merely does not have."""
    text: str


def verify(root: Path, *, evidence: Callable[[str], str] = lambda _id: "") -> tuple[Finding, ...]:
    """What is wrong with the history of the repository at ``root``; nothing if it is whole. Changes nothing.

    ``evidence`` is the digest of an experiment's evidence as it is on the disk now, ``""`` where there is none.

    Raises:
        Refusal: NOT_A_REPOSITORY, NO_COMMIT, DETACHED_HEAD.
    """
    history = History(root)
    if joined.unfinished(history):
        return (
            Finding(broken=False, text="a merge was cut off: the next run finishes it, and then all can be checked"),
        )
    try:
        known = load(history, history.checks.head())
    except Refusal as refusal:
        if refusal.status is not Status.LEDGER_BROKEN:
            raise
        return (Finding(broken=True, text=refusal.message),)
    stored = _Stored(
        history=history,
        lines=history.refs.texts(ROWS),
        commits=history.refs.under(EXPERIMENTS),
        missing=history.objects.unresolved([row.commit for row in known] + [row.kernel_blob for row in known]),
    )
    findings = []
    if strangers := state.strangers(history.git):
        text = f"not written by a run here, and nothing of it was done: {', '.join(strangers)} in {history.git.path}"
        findings.append(Finding(broken=False, text=f"{text}; look at it, and remove it"))
    if cut_off := journal.unfinished(history):
        findings.append(Finding(broken=False, text=f"experiment {cut_off} was cut off: the next run finishes it"))
    for row in known:
        findings += [Finding(broken=True, text=f"row {row.id}{text}") for text in stored.contradictions(row)]
        if row.evidence and evidence(row.id) not in ("", row.evidence):
            text = "the evidence on the disk is not what the judge left, some of it was changed or removed"
            findings.append(Finding(broken=False, text=f"row {row.id}: {text}"))
    for name in origins_of(history, known).ids(Origin.FORGED):
        text = "its MAC names this machine's key, which did not make it: the row was forged or its MAC replaced"
        findings.append(Finding(broken=True, text=f"row {name}: not from this machine's key: {text}"))
    if absent := sum(stored.is_gone(row) and row.id not in stored.lines for row in known):
        text = f"{absent} of {len(known)} rows came with the clone, without their commits; to have them: `{FETCH}`"
        findings.append(Finding(broken=False, text=text))
    return tuple(findings)


def verify_origins(root: Path) -> Origins:
    """Which rows of the repository at ``root`` were made with this machine's key. Changes nothing.

    Raises:
        Refusal: LEDGER_BROKEN, NOT_A_REPOSITORY.
    """
    return origins_of(History(root), rows(root))


def origins_of(history: History, known: tuple[Row, ...]) -> Origins:
    """Which of the rows were made with this machine's key. Makes none."""
    try:
        own = key.load(make=False)
    except key.NoKey as none:
        return Origins(no_key=str(none), by_id={})
    lines = {row.id: ledger.format_row(row) for row in known}
    return Origins(no_key="", by_id=origins(own, lines, history.refs.texts(MACS)))


def trusted(history: History, known: tuple[Row, ...]) -> tuple[Row, ...]:
    """The rows whose scores count without judging again: this key's own, or all where this machine has no key.

    Anyone can write a low score for HEAD's kernel into a ledger; what is compared with it would be kept.
    """
    if key.known() is None:
        return known
    own = set(origins_of(history, known).ids(Origin.HERE))
    return tuple(row for row in known if row.id in own)


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """What git holds of the rows: lines and commits by id, and the hashes that do not resolve."""

    history: History
    lines: Mapping[str, str]
    commits: Mapping[str, str]
    missing: Collection[str]

    def is_gone(self, row: Row) -> bool:
        """Whether the commit or the kernel of a row is not here."""
        return row.commit in self.missing or row.kernel_blob in self.missing

    def contradictions(self, row: Row) -> Iterator[str]:
        """What of a row is not as git has it, to follow ``row <id>``."""
        here, gone = row.id in self.lines, self.is_gone(row)
        if here and gone:
            yield f": commit {row.commit} does not resolve"
        if here and self.lines[row.id] != ledger.format_row(row):
            yield " differs from the row that git holds"
        if here and self.commits.get(row.id) != row.commit:
            yield f": {EXPERIMENTS}{row.id} does not name its commit"
        if gone:
            return
        entry = self.history.objects.entry(row.commit, row.kernel)
        if entry is None or entry.blob != row.kernel_blob:
            yield f": {row.kernel} in commit {row.commit[:10]} is not the kernel that was judged"


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """What ``rebuild`` wrote."""

    rows: int
    from_head: int
    """Rows that HEAD's ledger has; the others came from refs."""
    left_out: tuple[str, ...]
    """Ids of rows written on this branch that do not follow HEAD's last row; git still has them."""
    replaced: str | None
    """Ref with the bytes of the ledger that was replaced, or None if it was whole already."""
    notes: tuple[str, ...]


def rebuild(root: Path) -> Rebuilt:
    """Writes the ledger anew from git: HEAD's rows, then those that refs hold, each following the one before.

    Raises:
        Refusal: LEDGER_BROKEN if HEAD's own ledger is; BUSY; and the preconditions of an experiment.
    """
    history = History(root)
    with locked(history, message="rebuild", wait_s=0, progress=lambda _: None):
        head = history.checks.ready()
        committed = _committed(history, head)
        try:
            from_head = len(ledger.parse(committed)) if committed is not None else 0
        except Refusal as refusal:
            message = f"HEAD's own ledger is broken ({refusal.message}): restore it from an older commit first"
            raise Refusal(Status.LEDGER_BROKEN, message) from None
        lines = [ledger.HEADER] if committed is None else ledger.lines_of(committed)
        stored = history.refs.texts(ROWS).values()
        further, left_out = following(lines, history.refs.tip(head.branch), stored)
        data = "".join(f"{line}\n" for line in lines + further).encode()
        ledger.parse(data)
        path = history.root / ledger.NAME
        before = history.tree.read(path) if history.tree.is_file(path) else None
        replaced = None
        if data != before and (history.tree.exists(path) or len(lines + further) > 1):
            if before is not None:
                replaced = REPLACED + ledger.new_id()
                history.refs.point({replaced: history.objects.store(before)})
            history.files.write(ledger.NAME, data)
        if left_out and len(lines) > 1:
            history.refs.point({tip_ref(head.branch): history.objects.store(lines[-1].encode())})
        elif left_out:
            history.refs.delete(tip_ref(head.branch))
        notes = journal.recover(history)
        total = len(ledger.read(path))
    return Rebuilt(rows=total, from_head=from_head, left_out=left_out, replaced=replaced, notes=notes)
