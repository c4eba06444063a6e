"""One judging inside a turn: the judge, the private copy, the verdict, the problem lock before and after, the row."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ratchet.loop import journal, ledger, log
from ratchet.loop.checks import Head
from ratchet.loop.decide import Ruling
from ratchet.loop.journal import Plan
from ratchet.loop.objects import Entry
from ratchet.loop.refs import EXPERIMENTS
from ratchet.loop.rows import comparisons, make_row
from ratchet.loop.subject import Subject
from ratchet.loop.workspace import Interrupts
from ratchet.process.root import Root
from ratchet.process.sandbox.folder import ScratchFolder
from ratchet.values import MEASURED, Against, Bar, Conditions, Decision, Row, Verdict
from ratchet.values.status import Refusal, Status


class Judge(Protocol):
    """Says what a kernel is worth, under which conditions, and by which files."""

    def judge(
        self,
        kernel_path: Path,
        *,
        kernel_rel: str,
        evidence_id: str,
        against: Against | None = None,
        bar: Bar | None = None,
    ) -> Verdict:
        """Judge the file ``kernel_path``, whose bytes will not change, as the kernel ``kernel_rel`` of the repository.

        ``evidence_id`` names the folders for its evidence. It may write the kernel's problem lock beside the kernel in
        the work tree, and no other file there that git does not ignore. Where it measures, it times the kernel beside
        the incumbent, ``against``. Where it models, it need not check the values of a kernel that ``bar`` turns down.
        """

    def conditions(self, kernel_rel: str) -> Conditions:
        """What a kernel would be judged under now. Cheap."""

    def seal(self) -> str:
        """Digest of the files that a verdict follows from, asked before and after judging."""

    def protected_paths(self) -> Collection[str]:
        """The judge's files, relative to the repository's top: a change there is SEAL_BROKEN and not DIRTY."""

    def evidence(self, evidence_id: str) -> str:
        """Digest of an experiment's evidence, for its row; ``""`` where there is none."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a turn ended."""

    status: Status
    """Its exit code is the process's."""
    decision: str
    """A word of ``Decision``, or ``""`` where nothing was judged (NO_CHANGE)."""
    reason: str
    row: Row
    """The row of this turn; for NO_CHANGE the row that has the score already."""
    verdict: Verdict | None
    baseline: Row | None = None
    """The row of HEAD's kernel, where it had to be judged first in this turn."""
    incumbent: Row | None = None
    """The row that the candidate was compared with."""
    notes: tuple[str, ...] = ()
    """What else a user must know, beside what ``progress`` said already."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What every judging of a turn works with."""

    subject: Subject
    judge: Judge
    seal: str
    """The judge's seal as the turn began."""
    interrupts: Interrupts
    progress: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a judging begins: HEAD and the ledger's rows."""

    head: Head
    rows: tuple[Row, ...]


@dataclass(kw_only=True)
class Trial:
    """One kernel that is judged, and what judging did to its problem lock (blobs; None where there is no file)."""

    tools: Tools
    standing: Standing
    entry: Entry
    """The kernel file that is judged."""
    name: str
    """The experiment's id."""
    message: str
    lock_before: str | None
    lock_committed: str | None
    lock_after: str | None = None
    recorded: bool = False

    @property
    def head(self) -> Head:
        return self.standing.head

    @property
    def lock_back(self) -> str | None:
        """What a revert goes back to."""
        return self.lock_committed or self.lock_before

    @property
    def lock_changed(self) -> bool:
        return self.lock_after != self.lock_back

    def commit(self) -> str:
        """The commit that holds the judged kernel, with its ref."""
        return self.tools.subject.commit(self.head, self.entry, self.name, self.message)

    def verdict(self, what: str, incumbent: Row | None = None, bar: Bar | None = None) -> Verdict:
        """The verdict on a private copy of the committed bytes: editing the file meanwhile changes nothing.

        Raises:
            Refusal: SEAL_BROKEN if a file of the judge changed meanwhile.
            KeyboardInterrupt: judging was interrupted.
        """
        tools, subject = self.tools, self.tools.subject
        tools.progress(f"{self.name}: judging {what}")
        with contextlib.closing(ScratchFolder()) as scratch:
            copy = scratch.root / Path(subject.kernel).name
            with ledger.writing(str(copy)):
                Root(scratch.root).create(copy.name, subject.history.objects.blob(self.entry.blob))
                against = self._against(incumbent, scratch.root / "incumbent" / copy.name)
            verdict = tools.judge.judge(
                copy, kernel_rel=subject.kernel, evidence_id=self.name, against=against, bar=bar
            )
        if verdict.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if tools.judge.seal() != tools.seal:
            message = "a file of the judge changed while it judged, so the verdict does not count: restore it"
            raise Refusal(Status.SEAL_BROKEN, message)
        self.lock_after = subject.lock_blob()
        if self.lock_changed:
            subject.history.files.flush(subject.lock)
        return verdict

    def _against(self, incumbent: Row | None, copy: Path) -> Against | None:
        """The incumbent's bytes at ``copy``, where the judge measures and has to time them too."""
        if incumbent is None or incumbent.evaluator not in MEASURED:
            return None
        history = self.tools.subject.history
        root = Root(copy.parent.parent)
        root.make_folder(copy.parent)
        root.create(copy, history.objects.blob(incumbent.kernel_blob))
        begun = set(history.refs.under(EXPERIMENTS)) - {self.name}
        return Against(kernel=copy, test=comparisons(self.standing.rows, begun) + 1)

    def plan(self, commit: str, *, move: bool = False, restore_kernel: bool = False, restore_lock: bool) -> Plan:
        """What is to be done to branch and files."""
        subject = self.tools.subject
        return Plan(
            branch=self.head.branch,
            old=self.head.commit,
            new=commit,
            kernel=subject.kernel,
            judged=self.entry.blob,
            lock=subject.lock,
            lock_now=self.lock_after,
            lock_back=self.lock_back,
            move=move,
            restore_kernel=restore_kernel,
            restore_lock=restore_lock,
        )

    def record(self, verdict: Verdict, ruling: Ruling, plan: Plan, evidence: str) -> Outcome:
        """Appends the row and enacts the plan. If HEAD moved meanwhile, the row says so and git is left alone."""
        history = self.tools.subject.history
        head = history.checks.head()
        moved = head != self.head
        if moved:
            where = f"{head.branch.removeprefix('refs/heads/')} at {head.commit[:10]}"
            reason = f"HEAD moved to {where} while this was judged, so nothing was kept or reverted; {ruling.reason}"
            ruling = Ruling(decision=Decision.JUDGED, status=verdict.status, reason=reason)
            plan = dataclasses.replace(
                plan,
                branch=head.branch,
                old=head.commit,
                move=False,
                restore_kernel=False,
                restore_lock=self.lock_changed,
            )
        log.load(history, head)
        row = make_row(
            verdict,
            ruling,
            plan=plan,
            name=self.name,
            parent=self.head.commit,
            message=self.message,
            evidence=evidence,
        )
        done = journal.record(history, row, plan)
        self.recorded = True
        return Outcome(
            status=Status.BRANCH_MOVED if moved or done.moved else ruling.status,
            decision=done.row.decision,
            reason=done.row.reason,
            row=done.row,
            verdict=verdict,
            notes=done.notes,
        )


@contextlib.contextmanager
def trial(tools: Tools, standing: Standing, entry: Entry, message: str) -> Iterator[Trial]:
    """One judging; leaving it before its outcome is recorded puts the problem lock back as it was."""
    subject, head = tools.subject, standing.head
    committed = subject.history.objects.entry(head.commit, subject.lock)
    judged = Trial(
        tools=tools,
        standing=standing,
        entry=entry,
        name=subject.history.refs.reserve_id(log.last_id(standing.rows), head.commit),
        message=message,
        lock_before=subject.lock_blob(),
        lock_committed=committed.blob if committed else None,
    )
    try:
        yield judged
    finally:
        if not judged.recorded:
            with tools.interrupts.held():
                if journal.unfinished(subject.history) is None:
                    subject.history.files.restore(subject.lock, blob=judged.lock_before, judged=subject.lock_blob())
