"""The kernel file an experiment is about: where it is, its bytes, its problem lock, and the commit that holds them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from ratchet.exam.candidate.contract import check_name
from ratchet.exam.problem.problem import lock_path
from ratchet.loop import ledger
from ratchet.loop.checks import Head
from ratchet.loop.history import History
from ratchet.loop.objects import Entry
from ratchet.loop.refs import EXPERIMENTS
from ratchet.process.sandbox.child import packages
from ratchet.values.status import Refusal, Status

NEEDED_BYTES = 1 << 20
"""Free space wanted on the disks of work tree and git folder before anything is judged."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A kernel file of a repository; ``kernel`` is relative to its top."""

    history: History
    kernel: str

    @classmethod
    def of(cls, history: History, kernel: Path) -> Subject:
        """The kernel file at ``kernel``, absolute or relative to the top. Links in its folders are followed.

        Raises:
            Refusal: USAGE if it is outside the work tree, is no kernel file, or is named like a module.
        """
        root = history.root
        path = Path(os.path.abspath(root / kernel))
        path = Path(os.path.realpath(path.parent), path.name)
        if not path.is_relative_to(root) or path.is_relative_to(root / ".git") or path in (root, root / ledger.NAME):
            raise Refusal(Status.USAGE, f"{kernel} is not a kernel file inside {root}: name one that is")
        check_name(path.name, packages())
        return cls(history=history, kernel=path.relative_to(root).as_posix())

    @property
    def lock(self) -> str:
        """Path of the kernel's problem lock, relative to the top."""
        return lock_path(Path(self.kernel)).as_posix()

    def entry(self, head: Head) -> Entry:
        """The kernel file of the work tree, stored in git.

        Raises:
            Refusal: NOT_FOUND, USAGE.
        """
        committed = self.history.objects.entry(head.commit, self.kernel)
        entry = self.history.files.entry(self.kernel, committed)
        if entry is None:
            back = f"`git checkout HEAD -- {self.kernel}`, or " if committed else ""
            raise Refusal(Status.NOT_FOUND, f"there is no file {self.kernel}: {back}name another with --kernel")
        return entry

    def lock_blob(self) -> str | None:
        """The problem lock of the work tree, stored in git; None if there is none."""
        entry = self.history.files.entry(self.lock, None)
        return entry.blob if entry else None

    def commit(self, head: Head, entry: Entry, name: str, message: str) -> str:
        """The commit of experiment ``name``: HEAD, the kernel, its problem lock and the ledger so far; with its ref."""
        history = self.history
        files = {self.kernel: entry}
        lock = history.files.entry(self.lock, history.objects.entry(head.commit, self.lock))
        if lock is not None:
            files[self.lock] = lock
        rows = ledger.load_bytes(history.root / ledger.NAME)
        if rows is not None:
            files[ledger.NAME] = Entry(mode="100644", blob=history.objects.store(rows))
        commit = history.objects.commit(parent=head.commit, files=files, message=message)
        history.refs.point({EXPERIMENTS + name: commit})
        return commit

    def check_room(self) -> None:
        """Refuses before minutes of judging what could not be written down afterwards.

        Raises:
            Refusal: LEDGER_UNWRITABLE, NO_SPACE.
        """
        ledger.check_writable(self.history.root / ledger.NAME)
        for folder in (self.history.root, self.history.git.path):
            free = shutil.disk_usage(folder).free
            if free < NEEDED_BYTES:
                message = f"{free >> 10} KiB free at {folder}, wanted {NEEDED_BYTES >> 10} KiB: free some and run again"
                raise Refusal(Status.NO_SPACE, message)
