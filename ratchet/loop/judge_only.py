"""Judging the kernel file of the work tree: a row is appended, and branch, index and work tree are left alone."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ratchet.loop import journal, log
from ratchet.loop.checks import Head
from ratchet.loop.decide import Ruling
from ratchet.loop.history import History
from ratchet.loop.journal import Plan
from ratchet.loop.rows import make_row
from ratchet.loop.subject import Subject
from ratchet.loop.trial import Judge, Outcome
from ratchet.loop.workspace import Interrupts, locked
from ratchet.process import paths
from ratchet.values import Decision, Row, Verdict
from ratchet.values.status import Refusal, Status

WAIT_S = 60.0
"""How long to wait for an experiment that is just being recorded."""
SETTLE_S = 0.3


def judge_only(
    *,
    root: Path,
    kernel: Path,
    judge: Judge,
    progress: Callable[[str], None] = lambda _line: None,
) -> Outcome:
    """Judges the kernel file of the work tree and appends a row with the decision ``judged``.

    The judged bytes get a commit under ``refs/ratchet/experiments``, so that the row's hash resolves. The repository
    is locked while the row is written and not while judging.

    Raises:
        Refusal: as ``run_experiment``, except that other files may differ from HEAD.
    """
    with Interrupts().installed() as interrupts:
        history = History(root)
        subject = Subject.of(history, kernel)
        head = history.checks.ready()
        rows = _loaded_beside_others(history, head)
        subject.check_room()
        subject.lock_blob()  # is one that can be read, or none
        entry = subject.entry(head)
        name = history.refs.reserve_id(log.last_id(rows), head.commit)
        verdict = _verdict(subject, judge, entry.blob, name)
        reason = f"{verdict.status.name}: {verdict.reason}"
        ruling = Ruling(decision=Decision.JUDGED, status=verdict.status, reason=reason)
        digest = judge.evidence(name)
        with (
            locked(history, message="prepare.py", wait_s=WAIT_S, progress=progress),
            interrupts.held(to_the_end=True),
        ):
            notes = journal.recover(history)
            head = history.checks.ready()
            log.load(history, head)
            commit = subject.commit(head, entry, name, f"judged: {subject.kernel}")
            plan = Plan(
                branch=head.branch,
                old=head.commit,
                new=commit,
                kernel=subject.kernel,
                judged=entry.blob,
                lock=subject.lock,
            )
            row = make_row(verdict, ruling, plan=plan, name=name, parent=head.commit, message="", evidence=digest)
            done = journal.record(history, row, plan)
    return Outcome(
        status=ruling.status,
        decision=ruling.decision,
        reason=reason,
        row=done.row,
        verdict=verdict,
        notes=notes + done.notes,
    )


def _verdict(subject: Subject, judge: Judge, blob: str, name: str) -> Verdict:
    """The verdict on a private copy of the bytes."""
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        copy = Path(folder, Path(subject.kernel).name)
        paths.write(copy, subject.history.objects.blob(blob))
        verdict = judge.judge(copy, kernel_rel=subject.kernel, evidence_id=name)
    if verdict.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return verdict


def _loaded_beside_others(history: History, head: Head) -> tuple[Row, ...]:
    """The ledger, read without the lock: what looks broken may be a row that another run is just writing."""
    for _ in range(2):
        try:
            return log.load(history, head) if journal.unfinished(history) is None else ()
        except Refusal:
            time.sleep(SETTLE_S)
    return log.load(history, head)
