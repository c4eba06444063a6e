"""Merging the ledger of another clone into this one: whose rows go where, and which kernels are to be judged again.

Where the other line is only ahead, this one becomes it: same branch, same file. Else its new rows are appended as they
are, and a merge row after them names both heads (``ledger.ordered`` has the order). The merge commit has both heads as
parents, and this line's files: a kernel of the other line becomes HEAD's by a turn of the ratchet, like any candidate.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

from ratchet.exam.problem.problem import lock_path
from ratchet.loop import joined, ledger, log, other, placed
from ratchet.loop.checks import Head
from ratchet.loop.decide import conditions_of, scored
from ratchet.loop.history import History
from ratchet.loop.joined import Joining
from ratchet.loop.objects import Entry
from ratchet.loop.origin import sign
from ratchet.loop.other import Other
from ratchet.loop.rows import newest
from ratchet.loop.series import series_of
from ratchet.loop.trial import Judge
from ratchet.process import key
from ratchet.values import Conditions, Row
from ratchet.values.status import Refusal, Status


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A kernel of the other line that may be better than HEAD's."""

    kernel: str
    text: bytes
    row: str
    """Id of the other line's newest row of it; ``""`` where it has none."""


@dataclass(frozen=True, kw_only=True)
class Merged:
    """What a merge came to."""

    name: str
    """Of the other line."""
    came: int
    """Rows that are new here."""
    only_ahead: bool
    """This line had nothing that the other did not have."""
    row: str
    """Id of the merge row; ``""`` where none was needed."""
    contenders: tuple[Contender, ...]


def merge(
    source: str,
    *,
    branch: str = "",
    root: Path,
    judge: Judge,
    wait_s: float = 0.0,
    progress: Callable[[str], None] = lambda _line: None,
) -> Merged:
    """Takes the rows of ``source``, a remote's name, a URL or the folder of a clone, and of its ``branch``.

    Judges nothing: ``Merged.contenders`` are for ``run_experiment``, best by their rows first. Called again it finds
    the same ones until they were judged here.

    Raises:
        Refusal: NOT_FOUND, LEDGER_BROKEN of the other line; USAGE for a history that is no relative's;
            PROBLEM_CHANGED; SEAL_BROKEN; DIRTY; and as ``run_experiment`` before it judges. Nothing changed.
    """
    with (
        placed.begun(root, message=f"merge {source}", wait_s=wait_s, progress=progress) as (history, interrupts),
        contextlib.ExitStack() as stack,
    ):
        history.checks.clean(allowed=(ledger.NAME,), sealed=judge.protected_paths())
        head = history.checks.head()
        rows = log.load(history, head)
        fetched = stack.enter_context(history.remotes.fetched(source, branch))
        theirs = other.read(history, fetched, source)
        step = _Merge(history=history, head=head, rows=rows, theirs=theirs, judge=judge)
        step.check()
        ahead = step.only_ahead()
        if ahead:
            step.check_room()
        contenders = () if ahead else tuple(step.contenders())
        with interrupts.held(to_the_end=True):
            name = step.follow() if ahead else step.join()
        return Merged(name=theirs.name, came=len(step.new), only_ahead=ahead, row=name, contenders=contenders)


@dataclass(frozen=True, kw_only=True)
class _Merge:
    history: History
    head: Head
    rows: tuple[Row, ...]
    theirs: Other
    judge: Judge

    @cached_property
    def _data(self) -> bytes:
        return ledger.load_bytes(self.history.root / ledger.NAME) or f"{ledger.HEADER}\n".encode()

    @cached_property
    def new(self) -> list[str]:
        """The other line's lines that are not here, in order."""
        here = set(ledger.lines_of(self._data))
        return [line for line in self.theirs.lines if line not in here]

    def _blob(self, commit: str, path: str) -> str:
        entry = self.history.objects.entry(commit, path)
        return entry.blob if entry else ""

    @cached_property
    def _kernels(self) -> list[str]:
        known = {row.kernel for row in (*self.rows, *self.theirs.rows) if row.decision != ledger.MERGED}
        return sorted(known)

    def _differing(self) -> Iterator[tuple[str, str, str]]:
        """Kernel files that the other line has changed, and this one has not judged: path, blob here, blob there."""
        base = self._base()
        for kernel in self._kernels:
            ours, theirs = self._blob(self.head.commit, kernel), self._blob(self.theirs.commit, kernel)
            if theirs not in ("", ours) and (theirs != self._blob(base, kernel) or self._was_cut_off(kernel)):
                yield kernel, ours, theirs

    def _was_cut_off(self, kernel: str) -> bool:
        """Whether a merge is the last that became of a kernel: a run may have ended before it was judged."""
        last = next((row for row in reversed(self.rows) if row.kernel == kernel or row.decision == ledger.MERGED), None)
        return last is not None and last.decision == ledger.MERGED

    def _base(self) -> str:
        base = self.history.remotes.common(self.head.commit, self.theirs.commit)
        if base is None:
            what = f"{self.theirs.name!r:.100} shares no commit with this repository"
            raise Refusal(Status.USAGE, f"{what}: wanted a clone of it, or what it was cloned from")
        return base

    # --- what is refused ---

    def check(self) -> None:
        """Raises:
        Refusal: what keeps the two lines from being one.
        """
        base = self._base()
        ids = {row.id for row in self.rows}
        for line in self.new:
            if (twice := ledger.parse_row(line).id) in ids:
                what = f"two different rows have the id {twice}, one here and one in {self.theirs.name!r:.100}"
                raise Refusal(Status.LEDGER_BROKEN, f"{what}: neither can be renamed, so the two cannot be one ledger")
        self._check_problems()
        self._check_files(base)
        self._check_seals()

    def _check_problems(self) -> None:
        for kernel in self._kernels:
            lock = lock_path(Path(kernel)).as_posix()
            here, there = self._blob(self.head.commit, lock), self._blob(self.theirs.commit, lock)
            if here and there and here != there:
                what = f"{lock} is {here[:10]} here and {there[:10]} in {self.theirs.name!r:.100}"
                todo = f"take one of the two on both sides, and judge {kernel} by it there"
                raise Refusal(Status.PROBLEM_CHANGED, f"the frozen problems differ, {what}: {todo}")

    def _check_files(self, base: str) -> None:
        """Files that no experiment changes are nobody's to choose here; nor is a kernel file that one side lacks."""
        changed = set(self.history.remotes.changed(base, self.theirs.commit))
        changed &= set(self.history.remotes.changed(self.head.commit, self.theirs.commit))
        locks = {lock_path(Path(kernel)).as_posix() for kernel in self._kernels}
        both = {path for path in self._kernels if self._blob(self.head.commit, path)} | locks
        known = {path for path in both if self._blob(self.theirs.commit, path)} | {ledger.NAME}
        known -= set(self.judge.protected_paths())  # whatever their rows call a kernel
        if not (foreign := sorted(changed - known)):
            return
        judges = sorted(set(foreign) & set(self.judge.protected_paths()))
        shown = ", ".join((judges or foreign)[:10])
        what = f"{self.theirs.name!r:.100} changed files that no experiment here changes: {shown}"
        if judges:
            todo = "bring both to one commit of the judge, and judge the kernel there again"
            raise Refusal(Status.SEAL_BROKEN, f"{what}, files of the judge: {todo}")
        raise Refusal(Status.DIRTY, f"{what}: take them over with git and commit them, then merge again")

    def _check_seals(self) -> None:
        seal = self.judge.seal()
        for kernel, _, blob in self._differing():
            row = newest(self.theirs.rows, kernel=kernel, blob=blob)
            if row is not None and series_of(row.seal) != series_of(seal):
                seals = f"seal {row.seal[:10]}, here {seal[:10]}"
                what = f"{self.theirs.name!r:.100} judged {kernel} by another judge, {seals}"
                todo = "bring both to one judge and one requirements.lock, and judge it there again"
                raise Refusal(Status.SEAL_BROKEN, f"{what}: their scores cannot be compared; {todo}")

    # --- what is done ---

    def only_ahead(self) -> bool:
        """Whether this line can become the other: nothing here is not there, and this machine judged its kernels."""
        there = set(self.theirs.lines)
        if not self.new or any(line not in there for line in ledger.lines_of(self._data)):
            return False
        if not self.history.refs.is_ancestor(self.head.commit, self.theirs.commit):
            return False
        return all(self._judged_here(kernel, blob) for kernel, _, blob in self._differing())

    def _judged_here(self, kernel: str, blob: str) -> bool:
        now = self.judge.conditions(kernel)
        rows = [row for number, row in enumerate(self.theirs.rows) if self.theirs.is_own(number)]
        lock = lock_path(Path(kernel)).as_posix()
        if not self._blob(self.head.commit, lock):  # it comes with the line
            rows = [dataclasses.replace(row, problem=now.problem) for row in rows]
        return newest(tuple(rows), kernel=kernel, blob=blob, conditions=now) is not None

    def contenders(self) -> Iterator[Contender]:
        """Kernels of the other line that are not worse by the rows, and were not judged here since they came."""
        there = {row.id for row in self.theirs.rows}
        trusted = log.trusted(self.history, self.rows)
        for kernel, ours, blob in self._differing():
            now = self.judge.conditions(kernel)
            since = tuple(row for row in trusted if row.id not in there)
            if any(row.kernel_blob == blob and _same(row, now) for row in since):
                continue
            theirs = newest(self.theirs.rows, kernel=kernel, blob=blob, conditions=now)
            mine = newest(trusted, kernel=kernel, blob=ours, conditions=now)
            bar, offer = scored(mine), scored(theirs)
            if bar is not None and offer is not None and offer <= bar:
                continue
            text = self.history.objects.blob(blob)
            yield Contender(kernel=kernel, text=text, row=theirs.id if theirs else "")

    @cached_property
    def _changed(self) -> tuple[str, ...]:
        changed = self.history.remotes.changed(self.head.commit, self.theirs.commit)
        return tuple(path for path in changed if path != ledger.NAME)

    def check_room(self) -> None:
        """Raises:
        Refusal: DIRTY where an untracked file is in the place of one that comes.
        """
        for path in self._changed:
            if not self._blob(self.head.commit, path) and self.history.tree.exists(path):
                what = f"{path} comes from {self.theirs.name!r:.100}, and one that git does not track is in its place"
                raise Refusal(Status.DIRTY, f"{what}: move it away, then merge again")

    def follow(self) -> str:
        """This line becomes the other; returns ``""``."""
        objects, data = self.history.objects, self._data
        after = "".join(f"{line}\n" for line in self.theirs.lines).encode()
        self._take_refs()
        joining = Joining(
            branch=self.head.branch,
            old=self.head.commit,
            new=self.theirs.commit,
            before=objects.store(data) if self._has_file() else "",
            after=objects.store(after),
            tip=objects.store(self.theirs.lines[-1].encode()),
            files=self._changed,
        )
        joined.enact(self.history, joining)
        return ""

    def join(self) -> str:
        """The other line's new rows after ours, and a merge row; returns its id, ``""`` where nothing is new."""
        objects, data, new = self.history.objects, self._data, self.new
        if not new:
            return ""
        blob = objects.store(data)
        message = f"merge: {len(new)} row{'s' * (len(new) > 1)} of {self.theirs.name}"
        commit = objects.commit(
            parent=self.head.commit,
            joins=self.theirs.commit,
            files={ledger.NAME: Entry(mode="100644", blob=blob)},
            message=message,
        )
        last = max(log.last_id(self.rows), log.last_id(self.theirs.rows))
        name = self.history.refs.reserve_id(last, commit)
        line = ledger.format_row(self._row(name, commit, blob, message))
        after = data + "".join(f"{one}\n" for one in (*new, line)).encode()
        ledger.parse(after)
        self._take_refs()
        mac = sign(key.known(), line)
        joining = Joining(
            branch=self.head.branch,
            old=self.head.commit,
            new=commit,
            before=blob if self._has_file() else "",
            after=objects.store(after),
            tip=objects.store(line.encode()),
            row=name,
            mac=objects.store(mac.encode()) if mac else "",
        )
        joined.enact(self.history, joining)
        return name

    def _row(self, name: str, commit: str, blob: str, message: str) -> Row:
        new = self.new
        first, last = (ledger.parse_row(line) for line in (new[0], new[-1]))
        here = ledger.lines_of(self._data)[-1]
        filled = {
            "commit": commit,
            "status": Status.NO_CHANGE.name,
            "note": ledger.note(message),
            "id": name,
            "time": ledger.utc_now(),
            "kernel": ledger.NAME,
            "kernel_blob": blob,
            "parent": self.head.commit,
            "decision": ledger.MERGED,
            "reason": f"{len(new)} rows of another line came, {first.id} to {last.id}; no kernel was judged",
            "evidence": ledger.digest(here),
            "previous": ledger.digest(new[-1]),
        }
        return Row(**{field.name: filled.get(field.name, "") for field in fields(Row)})

    def _has_file(self) -> bool:
        return self.history.tree.exists(ledger.NAME)

    def _take_refs(self) -> None:
        """The refs of the rows that come: each line, its MAC, and the commit of its experiment."""
        ids = {ledger.parse_row(line).id for line in self.new}
        taken = {ref: target for ref, target in self.theirs.refs.items() if ref.rpartition("/")[2] in ids}
        if taken:
            self.history.refs.point(taken)


def _same(row: Row, now: Conditions) -> bool:
    return conditions_of(row) == now
