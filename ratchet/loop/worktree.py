"""The user's working files and index, read as git would and brought back to HEAD's, and further work trees."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path, PurePath

from ratchet.loop.ledger import NAME as LEDGER
from ratchet.loop.ledger import writing
from ratchet.loop.objects import Entry, Objects, index_info
from ratchet.loop.plumbing import Git, first_line
from ratchet.loop.state import FOLDER
from ratchet.process.paths import of
from ratchet.process.root import Root, Unfit, is_of_git
from ratchet.values.status import Refusal, Status

_INDEX_PATIENCE_S = 2.0
_FILE_BYTES = 1 << 30
"""The largest file that is read: kernel files and problem locks are far smaller."""


class WorkTree:
    """The working files of a repository, and its index."""

    def __init__(self, git: Git, objects: Objects) -> None:
        self._git = git
        self._objects = objects

    def entry(self, path: str, head: Entry | None) -> Entry | None:
        """Stores the working tree's file ``path`` as ``git add`` would; None if there is no such file.

        Raises:
            Refusal: USAGE if it is not a regular file.
        """
        try:
            with self._git.tree.open(_inside(path)) as file:
                status, data = os.fstat(file.fileno()), file.read(_FILE_BYTES + 1)
            if len(data) > _FILE_BYTES:
                raise Refusal(Status.USAGE, f"{path} is larger than {_FILE_BYTES} bytes: name the kernel file itself")
        except FileNotFoundError:
            return None
        except Unfit:
            raise Refusal(Status.USAGE, f"{path} is not a regular file: name the file itself") from None
        except OSError as error:
            if error.errno == errno.ENOTDIR:
                return None
            if error.errno == errno.ELOOP:
                raise Refusal(Status.USAGE, f"{path} is not a regular file: {error.strerror}") from None
            raise Refusal(Status.NOT_FOUND, f"{path} cannot be read: {error.strerror}") from error
        executable = status.st_mode & stat.S_IXUSR if self._modes or head is None else head.mode == "100755"
        return Entry(mode="100755" if executable else "100644", blob=self.store(path, data))

    def store(self, path: str, data: bytes) -> str:
        """Stores ``data`` as ``git add`` would if it were the file ``path``, and returns the blob's hash."""
        return self._git.line("hash-object", "-w", "--stdin", f"--path={path}", stdin=data)

    @cached_property
    def _modes(self) -> bool:
        """Whether the file system keeps modes."""
        return self._git.run("config", "--type=bool", "core.fileMode")[1].strip() != b"false"

    def flush(self, path: str) -> None:
        """Has the file ``path``, if there is one, on the disk: what git gets to know of it must not outlive it."""
        with writing(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for name in (_inside(path), PurePath(path).parent):
                self._git.tree.flush(name)

    def sync_index(self, *, old: str, new: str, paths: Iterable[str], judged: Iterable[str] = ()) -> str | None:
        """Brings the user's index from ``old`` to ``new`` for ``paths``; anything else staged there is left alone.

        ``judged`` are further blobs that may be replaced. Returns what to do by hand if the index is locked.
        """
        wanted: dict[str, Entry] = {}
        removed = Entry(mode="0", blob="0" * len(new))
        for path in paths:
            before, after = self._objects.entry(old, path), self._objects.entry(new, path)
            staged = self._staged(path)
            known = {staged and staged.blob} <= {before and before.blob, after and after.blob, *judged}
            if staged != after and (known or path == LEDGER):  # the ledger only grows: HEAD has what was staged
                wanted[path] = after or removed
        deadline = time.monotonic() + _INDEX_PATIENCE_S
        while wanted:
            code, _, error = self._git.run("update-index", "-z", "--index-info", stdin=index_info(wanted))
            if not code:
                # Plumbing such as diff-index compares file times first: let it find them up to date.
                self._git.run("update-index", "-q", "--refresh")
                break
            again = code < 0 or "index.lock" in error  # it was killed, or another git is at work
            if not again or time.monotonic() > deadline:
                return f"the index is locked ({first_line(error)}); afterwards run `git reset -q -- {' '.join(wanted)}`"
            time.sleep(0.1)
        return None

    def _staged(self, path: str) -> Entry | None:
        out = self._git.output("ls-files", "-s", "-z", "--", path)
        fields = out.partition(b"\t")[0].decode().split()
        return Entry(mode=fields[0], blob=fields[1]) if fields else None

    def write(self, path: str, data: bytes) -> None:
        """Replaces the file ``path`` as a whole: it holds what it did, or ``data``, whenever this is killed."""
        with writing(path):
            self._git.tree.write(_inside(path), data, spare=self._spare(path))

    def restore(self, path: str, *, blob: str | None, judged: str | None) -> bool:
        """Brings the file ``path`` back to ``blob`` (None: no file), if its content is still ``judged``.

        Returns False, and changes nothing, if the file holds something else by now, or is no regular file.
        """
        try:
            now = self.entry(path, None)
        except Refusal as refusal:
            if refusal.status is not Status.USAGE:
                raise
            return False
        here = now.blob if now else None
        if here == blob:
            return True
        if here != judged:
            return False
        if blob is not None:
            self.write(path, self._git.output("cat-file", "--filters", f"--path={path}", blob))
            return True
        with writing(path):
            self._git.tree.unlink(_inside(path))
            self._git.tree.flush(PurePath(path).parent)
        return True

    def _spare(self, path: str) -> Root | None:
        """Where a file is written before it is renamed: out of the work tree, unless that is another file system."""
        own, folder = Root(self._git.git_dir / FOLDER), self._git.tree.state(PurePath(path).parent)
        here = own.state(".")
        return own if folder and here and folder.st_dev == here.st_dev else None


def _inside(path: str) -> str:
    """A path of a file of the work tree; one of git's own is none, nor one that leads out. Raises OSError."""
    if is_of_git(path) or PurePath(path).is_absolute():
        raise OSError(errno.EXDEV, "it is no path of the work tree", path)
    return path


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

    def knows(self, path: Path) -> bool:
        """Whether git has, or had, a work tree at ``path``."""
        common, named = Root(self._git.common_dir), os.fsencode(path / ".git")
        with contextlib.suppress(OSError):
            return any(common.read(f"worktrees/{one}/gitdir").strip() == named for one in common.names("worktrees"))
        return False

    def remove(self, path: Path) -> None:
        """Take a work tree away with all that is in it, read-only folders too."""
        root, name = of(path)
        root.remove(name)
        self._git.run("worktree", "prune")
