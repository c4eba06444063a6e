"""One turn of the ratchet: judge the kernel file against HEAD's, then keep it or go back.

The turn, in order: lock the repository; finish what an earlier run was cut off from; check the judge's seal and
that nothing but the kernel differs from HEAD; judge HEAD's kernel first where no row under these conditions
tells its score; make the candidate commit and its ref; judge the bytes of that commit; decide; append the row;
enact. The branch moves and the kernel file is restored only after the row is on the disk.

An interrupted turn writes no row: there is no verdict. Its commit stays under ``refs/ratchet/experiments``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ratchet.loop import journal, ledger, log
from ratchet.loop.decide import Ruling, decide, scored, speaks_of_the_kernel
from ratchet.loop.history import EXPERIMENTS, Entry, Head, History
from ratchet.loop.journal import Plan
from ratchet.loop.rows import baseline_reason, comparisons, make_row, newest, no_change_reason
from ratchet.loop.subject import Subject
from ratchet.loop.workspace import Interrupts, locked
from ratchet.values import MEASURED, Against, Conditions, Decision, Row, Verdict
from ratchet.values.status import Refusal, Status


class Judge(Protocol):
    """Judges the file ``kernel_path``, whose bytes will not change, as the kernel ``kernel_rel`` of the repository.

    ``evidence_id`` names the folders for its evidence. It may write the kernel's problem lock beside the kernel in
    the work tree, and no other file there that git does not ignore. Where it measures, it times the kernel beside the
    incumbent, ``against``.
    """

    def __call__(
        self, kernel_path: Path, *, kernel_rel: str, evidence_id: str, against: Against | None = None
    ) -> Verdict: ...


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a turn ended."""

    status: Status
    """Its exit code is the process's."""
    decision: str
    """A word of ``Decision``, or ``""`` where nothing was judged (NO_CHANGE)."""
    reason: str
    row: Row
    """The row of this turn; for NO_CHANGE the row that tells the score already."""
    verdict: Verdict | None
    baseline: Row | None = None
    """The row of HEAD's kernel, where it had to be judged first in this turn."""
    incumbent: Row | None = None
    """The row that the candidate was compared with."""
    notes: tuple[str, ...] = ()
    """What else a user must know, and was not told by ``progress`` already."""


def run_experiment(
    *,
    root: Path,
    kernel: Path,
    message: str,
    judge: Judge,
    conditions: Callable[[str], Conditions],
    seal: Callable[[], str],
    sealed: Collection[str] = (),
    evidence: Callable[[str], str] = lambda _id: "",
    new_problem: bool = False,
    wait_s: float = 0.0,
    progress: Callable[[str], None] = lambda _line: None,
) -> Outcome:
    """Runs one experiment on ``kernel`` in the repository whose top is ``root``.

    Args:
        root: Top folder of the repository.
        kernel: The kernel file, absolute or relative to ``root``.
        message: The commit message, verbatim.
        judge: Says what the kernel is worth.
        conditions: What a kernel (by path relative to ``root``) would be judged under now; cheap.
        seal: Digest of the judge's files, asked before and after judging.
        sealed: Paths of the judge's files relative to ``root``: a change there is SEAL_BROKEN and not DIRTY.
        evidence: Digest of the evidence of an experiment id, for the row.
        new_problem: Freeze a new problem on purpose: no incumbent, and the first PASS is kept.
        wait_s: How long to wait, in seconds, for another experiment in this repository to end.
        progress: Called with a line of text as the turn goes on.

    Raises:
        Refusal: the turn could not be run or finished, and nothing came of it: branch, kernel file and ledger are
            as they were (but a row for HEAD's kernel may have been added).
    """
    if not message.strip():
        raise Refusal(Status.USAGE, 'the message is empty: say what the experiment tries, e.g. "experiment: BQ 1024"')
    if "\0" in message:
        raise Refusal(Status.USAGE, "the message holds a NUL character, which git cannot store: leave it out")
    with contextlib.ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts().installed())
        history = History(root)
        stack.enter_context(locked(history.common_dir, message=message, wait_s=wait_s, progress=progress))
        history.check_ready()
        with interrupts.held():
            finished = journal.recover(history)
        interrupts.check()
        for line in finished:
            progress(line)
        subject = Subject.of(history, kernel)
        if subject.kernel in sealed:
            raise Refusal(Status.USAGE, f"{subject.kernel} is a file of the judge: name a kernel file with --kernel")
        turn = _Turn(
            subject=subject,
            message=message,
            judge=judge,
            conditions=conditions,
            seal=seal,
            sealed=sealed,
            evidence=evidence,
            new_problem=new_problem,
            progress=progress,
            interrupts=interrupts,
        )
        return turn.run()


def judge_only(
    *,
    root: Path,
    kernel: Path,
    judge: Judge,
    message: str = "",
    evidence: Callable[[str], str] = lambda _id: "",
    wait_s: float = 60.0,
    progress: Callable[[str], None] = lambda _line: None,
) -> Outcome:
    """Judges the kernel file as it stands and appends a row with the decision ``judged``.

    Branch, index and work tree are left alone; the judged bytes get a commit under ``refs/ratchet/experiments``, so
    that the row's hash resolves. The repository is locked while the row is written and not while judging.

    Raises:
        Refusal: as ``run_experiment``, except that other files may differ from HEAD.
    """
    with Interrupts().installed() as interrupts:
        history = History(root)
        subject = Subject.of(history, kernel)
        head = history.check_ready()
        rows = _loaded_beside_others(history, head)
        subject.check_room()
        entry = subject.entry(head)
        name = history.reserve_id(log.last_id(rows), head.commit)
        with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
            copy = Path(folder, Path(subject.kernel).name)
            copy.write_bytes(history.blob(entry.blob))
            verdict = judge(copy, kernel_rel=subject.kernel, evidence_id=name)
        if verdict.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        reason = f"{verdict.status.name}: {verdict.reason}"
        ruling = Ruling(decision=Decision.JUDGED, status=verdict.status, reason=reason)
        digest = evidence(name)
        with (
            locked(history.common_dir, message=message or "prepare.py", wait_s=wait_s, progress=progress),
            interrupts.held(to_the_end=True),
        ):
            notes = journal.recover(history)
            head = history.check_ready()
            log.load(history, head)
            commit = subject.commit(head, entry, name, message or f"judged: {subject.kernel}")
            row = make_row(
                verdict,
                ruling,
                name=name,
                commit=commit,
                parent=head.commit,
                kernel=subject.kernel,
                kernel_blob=entry.blob,
                message=message,
                evidence=digest,
            )
            plan = Plan(
                branch=head.branch,
                old=head.commit,
                new=commit,
                kernel=subject.kernel,
                judged=entry.blob,
                lock=subject.lock,
                lock_now=None,
                lock_back=None,
            )
            done = journal.record(history, row, plan)
    return Outcome(
        status=ruling.status,
        decision=ruling.decision,
        reason=reason,
        row=done.row,
        verdict=verdict,
        notes=notes + done.notes,
    )


def _loaded_beside_others(history: History, head: Head) -> tuple[Row, ...]:
    """The ledger, read without the lock: what looks broken may be a row that another run is just writing."""
    for _ in range(2):
        try:
            return log.load(history, head) if journal.unfinished(history) is None else ()
        except Refusal:
            time.sleep(0.3)
    return log.load(history, head)


@dataclass(kw_only=True)
class _Judged:
    """One judging: what was judged and what it did to the problem lock (blobs; None where there is no file)."""

    head: Head
    entry: Entry
    name: str
    message: str
    lock_before: str | None
    lock_committed: str | None
    lock_after: str | None = None
    recorded: bool = False

    @property
    def lock_back(self) -> str | None:
        """What a revert goes back to."""
        return self.lock_committed or self.lock_before

    @property
    def lock_changed(self) -> bool:
        return self.lock_after != self.lock_back


@dataclass(frozen=True, kw_only=True)
class _Turn:
    subject: Subject
    message: str
    judge: Judge
    conditions: Callable[[str], Conditions]
    seal: Callable[[], str]
    sealed: Collection[str]
    evidence: Callable[[str], str]
    new_problem: bool
    progress: Callable[[str], None]
    interrupts: Interrupts

    def run(self) -> Outcome:
        subject, history = self.subject, self.subject.history
        seal = self.seal()
        head = history.head()
        history.check_clean(allowed=(subject.kernel, ledger.NAME, subject.lock), sealed=self.sealed)
        rows = log.load(history, head)
        self._check_lock(head)
        subject.check_room()
        candidate = subject.entry(head)
        committed = history.entry(head.commit, subject.kernel)
        if self.new_problem or committed is None:
            return self._experiment(candidate, head, rows, seal, incumbent=None)
        now = self.conditions(subject.kernel)
        if candidate.blob == committed.blob:
            # A row of prepare.py does not count: it keeps no problem lock, and a baseline was asked for on purpose.
            here = history.refs(EXPERIMENTS)
            own = tuple(row for row in rows if row.id in here and row.decision != Decision.JUDGED)
            known = newest(own, kernel=subject.kernel, blob=committed.blob, conditions=now)
            if known is None:
                return self._baseline(committed, head, rows, seal, message=self.message, last=True)
            reason = no_change_reason(known)
            return Outcome(
                status=Status.NO_CHANGE, decision="", reason=reason, row=known, verdict=None, incumbent=known
            )
        incumbent = newest(rows, kernel=subject.kernel, blob=committed.blob, conditions=now)
        if incumbent is not None:
            return self._experiment(candidate, head, rows, seal, incumbent=incumbent)
        self.progress("judging HEAD's kernel first: no row tells its score under these conditions")
        message = f"baseline: judge {subject.kernel} as HEAD has it"
        baseline = self._baseline(committed, head, rows, seal, message=message, last=False)
        if not speaks_of_the_kernel(baseline.status):
            reason = f"HEAD's kernel could not be judged, so nothing was compared: {baseline.reason}"
            raise Refusal(baseline.status, reason)
        self.interrupts.check()
        head = history.head()
        incumbent = baseline.row if scored(baseline.row) is not None else None
        outcome = self._experiment(candidate, head, log.load(history, head), seal, incumbent=incumbent)
        return dataclasses.replace(outcome, baseline=baseline.row, notes=baseline.notes + outcome.notes)

    def _check_lock(self, head: Head) -> None:
        """HEAD's problem lock is part of the exam: it changes only with ``new_problem``."""
        lock = self.subject.lock
        committed = self.subject.history.entry(head.commit, lock)
        here = self.subject.lock_blob()
        if committed is None or self.new_problem or here == committed.blob:
            return
        what = "is missing" if here is None else "differs from HEAD's"
        todo = f"`git checkout HEAD -- {lock}`, or --new-problem to change it on purpose"
        raise Refusal(Status.DIRTY, f"the frozen problem {lock} {what}: {todo}")

    # --- the two kinds of judging ---

    def _baseline(
        self, entry: Entry, head: Head, rows: tuple[Row, ...], seal: str, *, message: str, last: bool
    ) -> Outcome:
        """Judges HEAD's own kernel. Its commit is HEAD, unless judging froze the problem: then that is committed.

        ``last``: nothing is judged after it in this turn.
        """
        subject = self.subject
        with self._judging(entry, head, rows, message) as judged:
            verdict = self._verdict(judged, seal, "HEAD's kernel")
            passed = verdict.status is Status.PASS
            frozen = passed and judged.lock_after not in (None, judged.lock_committed)
            reason = baseline_reason(verdict, newest(rows, kernel=subject.kernel, blob=entry.blob))
            ruling = Ruling(decision=Decision.BASELINE, status=verdict.status, reason=reason)
            digest = self.evidence(judged.name)
            with self.interrupts.held(to_the_end=last):
                commit = subject.commit(head, entry, judged.name, message) if frozen else head.commit
                plan = self._plan(judged, commit, move=frozen, restore_lock=not passed and judged.lock_changed)
                return self._record(judged, verdict, ruling, plan, digest)

    def _experiment(
        self, entry: Entry, head: Head, rows: tuple[Row, ...], seal: str, *, incumbent: Row | None
    ) -> Outcome:
        """Judges the candidate and keeps or reverts it."""
        with self._judging(entry, head, rows, self.message) as judged:
            commit = self.subject.commit(head, entry, judged.name, self.message)
            verdict = self._verdict(judged, seal, "the candidate", incumbent=incumbent, rows=rows)
            try:
                ruling = decide(verdict, incumbent)
            except ValueError as error:
                message = f"the verdict cannot be compared with the incumbent's row: {error}"
                raise Refusal(Status.INTERNAL, message) from error
            kept, reverted = ruling.decision == Decision.KEPT, ruling.decision == Decision.REVERTED
            digest = self.evidence(judged.name)
            with self.interrupts.held(to_the_end=True):
                if kept and judged.lock_changed:  # once more, with the problem that was frozen while judging
                    commit = self.subject.commit(head, entry, judged.name, self.message)
                restore_lock = not kept and judged.lock_changed
                plan = self._plan(judged, commit, move=kept, restore_kernel=reverted, restore_lock=restore_lock)
                outcome = self._record(judged, verdict, ruling, plan, digest)
        return dataclasses.replace(outcome, incumbent=incumbent)

    # --- steps of both ---

    @contextlib.contextmanager
    def _judging(self, entry: Entry, head: Head, rows: tuple[Row, ...], message: str) -> Iterator[_Judged]:
        """One judging; leaving it before its outcome is recorded puts the problem lock back as it was."""
        subject = self.subject
        committed = subject.history.entry(head.commit, subject.lock)
        judged = _Judged(
            head=head,
            entry=entry,
            name=subject.history.reserve_id(log.last_id(rows), head.commit),
            message=message,
            lock_before=subject.lock_blob(),
            lock_committed=committed.blob if committed else None,
        )
        try:
            yield judged
        finally:
            if not judged.recorded:
                with self.interrupts.held():
                    if journal.unfinished(subject.history) is None:
                        subject.history.restore(subject.lock, blob=judged.lock_before, judged=subject.lock_blob())

    def _verdict(
        self, judged: _Judged, seal: str, what: str, *, incumbent: Row | None = None, rows: tuple[Row, ...] = ()
    ) -> Verdict:
        """The verdict on a private copy of the committed bytes: editing the file meanwhile changes nothing."""
        self.progress(f"{judged.name}: judging {what}")
        history = self.subject.history
        work = history.state_dir / "work"
        copy = work / Path(self.subject.kernel).name
        with ledger.writing(str(copy)):
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            copy.write_bytes(history.blob(judged.entry.blob))
            against = self._against(incumbent, judged, rows, work / "incumbent" / copy.name)
        try:
            verdict = self.judge(copy, kernel_rel=self.subject.kernel, evidence_id=judged.name, against=against)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        if verdict.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if self.seal() != seal:
            message = "a file of the judge changed while it judged, so the verdict does not count: restore it"
            raise Refusal(Status.SEAL_BROKEN, message)
        judged.lock_after = self.subject.lock_blob()
        return verdict

    def _against(self, incumbent: Row | None, judged: _Judged, rows: tuple[Row, ...], copy: Path) -> Against | None:
        """The incumbent's bytes at ``copy``, where the judge measures and has to time them too."""
        if incumbent is None or incumbent.evaluator not in MEASURED:
            return None
        history = self.subject.history
        copy.parent.mkdir()
        copy.write_bytes(history.blob(incumbent.kernel_blob))
        begun = set(history.refs(EXPERIMENTS)) - {judged.name}
        return Against(kernel=copy, test=comparisons(rows, begun) + 1)

    def _plan(
        self, judged: _Judged, commit: str, *, move: bool, restore_kernel: bool = False, restore_lock: bool
    ) -> Plan:
        return Plan(
            branch=judged.head.branch,
            old=judged.head.commit,
            new=commit,
            kernel=self.subject.kernel,
            judged=judged.entry.blob,
            lock=self.subject.lock,
            lock_now=judged.lock_after,
            lock_back=judged.lock_back,
            move=move,
            restore_kernel=restore_kernel,
            restore_lock=restore_lock,
        )

    def _record(self, judged: _Judged, verdict: Verdict, ruling: Ruling, plan: Plan, evidence: str) -> Outcome:
        """Appends the row and enacts the plan. If HEAD moved meanwhile, the row says so and git is left alone."""
        history = self.subject.history
        head = history.head()
        moved = head != judged.head
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
                restore_lock=judged.lock_changed,
            )
        log.load(history, head)
        row = make_row(
            verdict,
            ruling,
            name=judged.name,
            commit=plan.new,
            parent=judged.head.commit,
            kernel=self.subject.kernel,
            kernel_blob=judged.entry.blob,
            message=judged.message,
            evidence=evidence,
        )
        done = journal.record(history, row, plan)
        judged.recorded = True
        return Outcome(
            status=Status.BRANCH_MOVED if moved or done.moved else ruling.status,
            decision=done.row.decision,
            reason=done.row.reason,
            row=done.row,
            verdict=verdict,
            notes=done.notes,
        )
