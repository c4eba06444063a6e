"""Further work trees of a repository: at a commit and on no branch, or on a branch of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

from ratchet.loop.plumbing import Git, first_line
from ratchet.values.status import Refusal, Status


class Trees:
    """The further work trees of a repository."""

    def __init__(self, git: Git) -> None:
        self._git = git

    def add(self, path: Path, commit: str) -> None:
        """A work tree at ``path``, which is not there yet.

        Raises:
            Refusal: as ``Git.trouble``.
        """
        self._git.output("worktree", "prune")  # those of runs that were killed
        self._git.output("worktree", "add", "--detach", str(path), commit)

    def add_on(self, path: Path, branch: str) -> None:
        """A work tree at ``path`` on a branch that no other is on; a branch that is new begins at HEAD.

        Raises:
            Refusal: BUSY where another work tree is on it; as ``Git.trouble``.
        """
        self._git.output("worktree", "prune")
        there = self._git.run("show-ref", "--verify", "--quiet", f"refs/heads/{branch}")[0] == 0
        words = (str(path), branch) if there else ("-b", branch, str(path), "HEAD")
        code, _, error = self._git.run("worktree", "add", "--quiet", *words)
        if code and ("already checked out" in error or "already used by" in error):
            where = first_line(error).removeprefix("fatal: ")
            raise Refusal(Status.BUSY, f"{where}: run there, or take another name")
        if code:
            raise self._git.trouble("worktree", error)

    def remove(self, path: Path) -> None:
        """Take a work tree away with all that is in it, read-only folders too."""
        for parent, _, _ in os.walk(path):
            with contextlib.suppress(OSError):
                os.chmod(parent, stat.S_IRWXU)
        shutil.rmtree(path, ignore_errors=True)
        self._git.run("worktree", "prune")
