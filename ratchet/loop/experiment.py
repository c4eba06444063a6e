"""One turn of the ratchet: judge the kernel file against HEAD's, then keep it or go back.

The turn, in order: lock the repository; finish what an earlier run was cut off from; check the judge's seal and
that nothing but the kernel differs from HEAD; judge HEAD's kernel first where no row under these conditions
has its score; make the candidate commit and its ref; judge the bytes of that commit; decide; append the row;
enact. The branch moves and the kernel file is restored only after the row is on the disk.

An interrupted turn writes no row: there is no verdict. Its commit stays under ``refs/ratchet/experiments``.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ratchet.kernelfile.mutation import Mutation, mutation
from ratchet.loop import ledger, log, placed
from ratchet.loop.checks import Head
from ratchet.loop.decide import Ruling, bar, decide, scored, speaks_of_the_kernel
from ratchet.loop.history import History
from ratchet.loop.objects import Entry
from ratchet.loop.refs import EXPERIMENTS
from ratchet.loop.rows import baseline_reason, newest, no_change_reason
from ratchet.loop.subject import Subject
from ratchet.loop.trial import Judge, Outcome, Standing, Tools, trial
from ratchet.values import Conditions, Decision, Row, Verdict
from ratchet.values.status import Refusal, Status


@dataclass(frozen=True, kw_only=True)
class Idea:
    """What one experiment tries."""

    message: str
    """The commit message, verbatim."""
    new_problem: bool = False
    """Freeze a new problem on purpose: no incumbent, and the first PASS is kept."""
    accept_trade: bool = False
    """Keep a modelled gain that is a trade too near to be ranked, on purpose."""
    text: bytes | None = None
    """The candidate, where it is not what the user has in the kernel file: that is HEAD's then, before and after."""
    beside: tuple[str, ...] = ()
    """Files that may differ from HEAD, relative to the top: where candidates come from."""
    compound: bool = True
    """Whether it may change several things at once."""

    def __post_init__(self) -> None:
        if not self.message.strip():
            raise Refusal(
                Status.USAGE, 'the message is empty: say what the experiment tries, e.g. "experiment: BQ 1024"'
            )
        if "\0" in self.message:
            raise Refusal(Status.USAGE, "the message holds a NUL character, which git cannot store: leave it out")


def run_experiment(
    idea: Idea,
    *,
    root: Path,
    kernel: Path,
    judge: Judge,
    wait_s: float = 0.0,
    progress: Callable[[str], None] = lambda _line: None,
) -> Outcome:
    """Runs one experiment on ``kernel`` in the repository whose top is ``root``.

    Args:
        idea: What it tries.
        root: Top folder of the repository.
        kernel: The kernel file, absolute or relative to ``root``.
        judge: Says what the kernel is worth.
        wait_s: How long to wait, in seconds, for another experiment in this repository to end.
        progress: Called with a line of text as the turn goes on.

    Raises:
        Refusal: the turn could not be run or finished, and nothing came of it: branch, kernel file and ledger are
            as they were (except that a row for HEAD's kernel may have been added).
    """
    with placed.begun(root, message=idea.message, wait_s=wait_s, progress=progress) as (history, interrupts):
        subject = Subject.of(history, kernel)
        if subject.kernel in judge.protected_paths():
            raise Refusal(Status.USAGE, f"{subject.kernel} is a file of the judge: name a kernel file with --kernel")
        tools = Tools(subject=subject, judge=judge, seal=judge.seal(), interrupts=interrupts, progress=progress)
        with placed.placed(subject, idea.text):
            return _Turn(idea=idea, tools=tools).run()


@dataclass(frozen=True, kw_only=True)
class _Turn:
    idea: Idea
    tools: Tools

    @property
    def subject(self) -> Subject:
        return self.tools.subject

    @property
    def history(self) -> History:
        return self.tools.subject.history

    def run(self) -> Outcome:
        """Checks, then a baseline, an experiment, both, or nothing."""
        subject, history = self.subject, self.history
        head = history.checks.head()
        allowed = (subject.kernel, ledger.NAME, subject.lock, *self.idea.beside)
        history.checks.clean(allowed=allowed, sealed=self.tools.judge.protected_paths())
        standing = Standing(head=head, rows=log.load(history, head))
        self._check_lock(head)
        subject.check_room()
        candidate = subject.entry(head)
        committed = history.objects.entry(head.commit, subject.kernel)
        if self.idea.new_problem or committed is None:
            return self._experiment(candidate, standing, incumbent=None)
        self._check_one_change(committed, candidate)
        now = self.tools.judge.conditions(subject.kernel)
        if candidate.blob == committed.blob:
            return self._unchanged(committed, standing, now)
        rows = log.trusted(history, standing.rows)
        incumbent = newest(rows, kernel=subject.kernel, blob=committed.blob, conditions=now)
        if incumbent is not None:
            return self._experiment(candidate, standing, incumbent=incumbent)
        return self._after_baseline(candidate, committed, standing)

    def _check_lock(self, head: Head) -> None:
        """HEAD's problem lock is part of the exam: it changes only with ``new_problem``."""
        lock = self.subject.lock
        committed = self.history.objects.entry(head.commit, lock)
        here = self.subject.lock_blob()
        if committed is None or self.idea.new_problem or here == committed.blob:
            return
        what = "is missing" if here is None else "differs from HEAD's"
        todo = f"`git checkout HEAD -- {lock}`, or --new-problem to change it on purpose"
        raise Refusal(Status.DIRTY, f"the frozen problem {lock} {what}: {todo}")

    def _check_one_change(self, committed: Entry, candidate: Entry) -> None:
        change = self._change(committed, candidate)
        if not self.idea.compound and change is not None and change.compound:
            todo = "try each on its own, or --compound to try them together on purpose"
            raise Refusal(Status.USAGE, f"this changes {change}: {todo}")

    def _change(self, committed: Entry | None, candidate: Entry) -> Mutation | None:
        """What the candidate changes of HEAD's kernel; None where one of them is no Python."""
        if committed is None:
            return None
        blob = self.history.objects.blob
        with contextlib.suppress(Refusal):
            return mutation(blob(committed.blob), blob(candidate.blob), self.subject.kernel)
        return None

    def _unchanged(self, committed: Entry, standing: Standing, now: Conditions) -> Outcome:
        """The kernel is what HEAD has: a baseline, or nothing where this clone has judged it already."""
        # A row of prepare.py does not count: it keeps no problem lock, and a baseline was asked for on purpose.
        here = self.history.refs.under(EXPERIMENTS)
        rows = log.trusted(self.history, standing.rows)
        own = tuple(row for row in rows if row.id in here and row.decision != Decision.JUDGED)
        known = newest(own, kernel=self.subject.kernel, blob=committed.blob, conditions=now)
        if known is None:
            return self._baseline(committed, standing, message=self.idea.message, last=True)
        reason = no_change_reason(known)
        return Outcome(status=Status.NO_CHANGE, decision="", reason=reason, row=known, verdict=None, incumbent=known)

    def _after_baseline(self, candidate: Entry, committed: Entry, standing: Standing) -> Outcome:
        """HEAD's kernel is judged first, then the candidate against it."""
        self.tools.progress("judging HEAD's kernel first: no row has its score under these conditions")
        message = f"baseline: judge {self.subject.kernel} as HEAD has it"
        baseline = self._baseline(committed, standing, message=message, last=False)
        if not speaks_of_the_kernel(baseline.status):
            reason = f"HEAD's kernel could not be judged, so nothing was compared: {baseline.reason}"
            raise Refusal(baseline.status, reason)
        self.tools.interrupts.check()
        head = self.history.checks.head()
        now = Standing(head=head, rows=log.load(self.history, head))
        incumbent = baseline.row if scored(baseline.row) is not None else None
        outcome = self._experiment(candidate, now, incumbent=incumbent)
        return dataclasses.replace(outcome, baseline=baseline.row, notes=baseline.notes + outcome.notes)

    def _baseline(self, entry: Entry, standing: Standing, *, message: str, last: bool) -> Outcome:
        """Judges HEAD's own kernel. Its commit is HEAD, unless judging froze the problem: then that is committed.

        ``last``: nothing is judged after it in this turn.
        """
        with trial(self.tools, standing, entry, message) as judged:
            verdict = judged.verdict("HEAD's kernel")
            passed = verdict.status is Status.PASS
            frozen = passed and judged.lock_after not in (None, judged.lock_committed)
            earlier = newest(standing.rows, kernel=self.subject.kernel, blob=entry.blob)
            reason = baseline_reason(verdict, earlier)
            ruling = Ruling(decision=Decision.BASELINE, status=verdict.status, reason=reason)
            digest = self.tools.judge.evidence(judged.name)
            with self.tools.interrupts.held(to_the_end=last):
                commit = judged.commit() if frozen else standing.head.commit
                plan = judged.plan(commit, move=frozen, restore_lock=not passed and judged.lock_changed)
                return judged.record(verdict, ruling, plan, digest)

    def _experiment(self, entry: Entry, standing: Standing, *, incumbent: Row | None) -> Outcome:
        """Judges the candidate and keeps or reverts it."""
        with trial(self.tools, standing, entry, self.idea.message) as judged:
            commit = judged.commit()
            verdict = judged.verdict("the candidate", incumbent, bar(incumbent, accept_trade=self.idea.accept_trade))
            ruling = self._ruling(verdict, incumbent)
            change = self._change(self.history.objects.entry(standing.head.commit, self.subject.kernel), entry)
            if change is not None:
                ruling = dataclasses.replace(ruling, reason=f"{ruling.reason}; changes {change}")
            kept, reverted = ruling.decision == Decision.KEPT, ruling.decision == Decision.REVERTED
            digest = self.tools.judge.evidence(judged.name)
            with self.tools.interrupts.held(to_the_end=True):
                if kept and judged.lock_changed:  # once more, with the problem that was frozen while judging
                    commit = judged.commit()
                restore_lock = not kept and judged.lock_changed
                plan = judged.plan(commit, move=kept, restore_kernel=reverted, restore_lock=restore_lock)
                outcome = judged.record(verdict, ruling, plan, digest)
        return dataclasses.replace(outcome, incumbent=incumbent)

    def _ruling(self, verdict: Verdict, incumbent: Row | None) -> Ruling:
        try:
            return decide(verdict, incumbent, accept_trade=self.idea.accept_trade)
        except ValueError as error:
            message = f"the verdict cannot be compared with the incumbent's row: {error}"
            raise Refusal(Status.INTERNAL, message) from error
