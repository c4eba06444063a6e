"""What must hold of a repository before an experiment: its state, its branch, and what differs from HEAD."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from ratchet.loop.objects import contents
from ratchet.loop.plumbing import Git
from ratchet.process.root import Root
from ratchet.values.status import Refusal, Status

_UNDER_WAY = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick",  # or a revert, between two commits
    "BISECT_LOG": "bisect",
}
_CONFLICTS = {"DD", "AU", "UD", "UA", "DU", "AA", "UU"}
_LISTED = 5
_STEERS, _TABLE = ".gitattributes", "pyproject.toml"
"""Files that a verdict or a commit depends on while git does not track them yet: how git stores files, and what is
judged. Whatever else is untracked is in no jail and in no commit."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """Where HEAD is."""

    branch: str
    """Full name, e.g. ``refs/heads/main``."""
    commit: str


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A path that differs from HEAD."""

    path: str
    code: str
    """The two letters of ``git status --short``: staged, unstaged, ``??`` for untracked."""

    def __str__(self) -> str:
        return f"{self.code} {self.path!r}" if "\n" in self.path else f"{self.code} {self.path}"

    @property
    def matters(self) -> bool:
        """Whether a verdict can depend on it: all that git tracks, and of the rest what steers git or the judge."""
        return self.code != "??" or PurePosixPath(self.path).name == _STEERS or self.path == _TABLE


class Checks:
    """Questions to a repository. None of them changes it."""

    def __init__(self, git: Git) -> None:
        self._git = git

    def ready(self) -> Head:
        """HEAD, if the repository is in a state to experiment in. Changes nothing.

        Raises:
            Refusal: OPERATION_UNDER_WAY, NO_COMMIT, DETACHED_HEAD, SHALLOW_CLONE, NO_IDENTITY.
        """
        own = Root(self._git.git_dir)
        for name, operation in _UNDER_WAY.items():
            if own.exists(name):
                message = (
                    f"a {operation} is under way: finish it or `git {operation} {_way_out(operation)}`, then run again"
                )
                raise Refusal(Status.OPERATION_UNDER_WAY, message)
        head = self.head()
        if self._git.line("rev-parse", "--is-shallow-repository") == "true":
            message = "this is a shallow clone, where history does not resolve: `git fetch --unshallow` first"
            raise Refusal(Status.SHALLOW_CLONE, message)
        for who in ("AUTHOR", "COMMITTER"):
            code, _, error = self._git.run("var", f"GIT_{who}_IDENT")
            if code:
                message = (
                    f"git does not know the {who.lower()} ({_last_line(error)}): "
                    "`git config user.name NAME` and `git config user.email ADDRESS`"
                )
                raise Refusal(Status.NO_IDENTITY, message)
        return head

    def head(self) -> Head:
        """The branch HEAD is on, and its commit.

        Raises:
            Refusal: NO_COMMIT, DETACHED_HEAD.
        """
        code, out, _ = self._git.run("rev-parse", "HEAD^{commit}", "--symbolic-full-name", "HEAD")
        if code:
            raise Refusal(
                Status.NO_COMMIT, "the repository has no commit yet: `git add` your files and `git commit` first"
            )
        commit, branch = os.fsdecode(out).removesuffix("\n").split("\n")
        if not branch.startswith("refs/heads/"):
            message = f"HEAD is detached at {commit[:10]}, wanted a branch: `git switch BRANCH` or `git switch -c NEW`"
            raise Refusal(Status.DETACHED_HEAD, message)
        return Head(branch=branch, commit=commit)

    def differences(self) -> tuple[Difference, ...]:
        """Every path that differs from HEAD: staged, unstaged, or untracked and not ignored."""
        out = self._git.output(
            "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=none"
        )
        records = (os.fsdecode(record) for record in out.split(b"\0") if record)
        return tuple(Difference(code=record[:2], path=record[3:]) for record in records)

    def unlike_head(self, paths: Iterable[str]) -> list[str]:
        """Which of some files hold other bytes than in HEAD, or are not in it; line ends do not count.

        Their bytes are read, so that nothing in the index or in git's configuration can have git overlook a change.
        """
        wanted = sorted(paths)
        listed = self._git.output("ls-tree", "-r", "-z", "HEAD").decode(errors="surrogateescape")
        blobs = {
            path: entry.split()[2] for entry, _, path in (one.partition("\t") for one in listed.split("\0") if one)
        }
        known = [path for path in wanted if path in blobs]
        in_head = dict(zip(known, contents(self._git, [blobs[path] for path in known]), strict=True))
        here = {path: self._git.tree.read(path) for path in wanted}
        return [path for path in wanted if path not in in_head or _lines(here[path]) != _lines(in_head[path])]

    def clean(self, *, allowed: Iterable[str], sealed: Iterable[str] = ()) -> None:
        """Raises:
        Refusal: DIRTY with the list of paths, other than ``allowed``, that differ from HEAD and matter; SEAL_BROKEN
            if one of them belongs to the judge; OPERATION_UNDER_WAY if an allowed path has an unresolved conflict.
        """
        allowed, sealed = set(allowed), set(sealed)
        differences = self.differences()
        if conflicts := [d.path for d in differences if d.path in allowed and d.code in _CONFLICTS]:
            message = f"{conflicts[0]} has an unresolved conflict: resolve it and `git add` it, then run again"
            raise Refusal(Status.OPERATION_UNDER_WAY, message)
        others = [difference for difference in differences if difference.path not in allowed]
        touched = [difference.path for difference in others if difference.path in sealed]
        if touched := touched or self.unlike_head(sealed):
            message = (
                f"the judge differs from HEAD: {', '.join(touched)}; `git checkout HEAD -- FILE`, or commit the change"
            )
            raise Refusal(Status.SEAL_BROKEN, message)
        if others := [difference for difference in others if difference.matters]:
            shown = ", ".join(map(str, others[:_LISTED]))
            more = f" and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
            todo = "commit them, or `git checkout HEAD -- FILE`"
            message = f"files other than the kernel differ from HEAD: {shown}{more}; {todo}"
            raise Refusal(Status.DIRTY, message)


def _lines(content: bytes) -> bytes:
    return content.replace(b"\r\n", b"\n")


def _last_line(error: str) -> str:
    return next((line for line in reversed(error.splitlines()) if line.strip()), "no message")


def _way_out(operation: str) -> str:
    return "reset" if operation == "bisect" else "--abort"
