"""Further work trees of a repository, each at a commit and on no branch."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

from ratchet.loop.plumbing import Git


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

    def remove(self, path: Path) -> None:
        """Take a work tree away with all that is in it, read-only folders too."""
        for parent, _, _ in os.walk(path):
            with contextlib.suppress(OSError):
                os.chmod(parent, stat.S_IRWXU)
        shutil.rmtree(path, ignore_errors=True)
        self._git.run("worktree", "prune")
