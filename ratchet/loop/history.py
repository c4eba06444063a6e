"""The history of a repository, in its parts: what it checks, what it stores, and the work tree."""

from __future__ import annotations

from pathlib import Path

from ratchet.loop.checks import Checks
from ratchet.loop.objects import Objects
from ratchet.loop.plumbing import Git
from ratchet.loop.refs import Refs
from ratchet.loop.remotes import Remotes
from ratchet.loop.worktree import Trees, WorkTree
from ratchet.process.root import Root


class History:
    """The repository whose top folder is ``root``.

    Raises:
        Refusal: NOT_A_REPOSITORY, or INFRASTRUCTURE if there is no git.
    """

    def __init__(self, root: Path) -> None:
        git = Git(root)
        self.root = git.root
        self.common_dir = git.common_dir
        """The git folder that all worktrees of a repository share."""
        self.tree, self.git, self.common = git.tree, Root(git.git_dir), Root(git.common_dir)
        """The work tree, its own git folder, and the one that all work trees share, as files of theirs are opened."""
        self.checks = Checks(git)
        self.objects = Objects(git)
        self.refs = Refs(git)
        self.files = WorkTree(git, self.objects)
        self.trees = Trees(git)
        self.remotes = Remotes(git)
