"""The user's working files and index, read as git would and brought back to HEAD's, and further work trees."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from ratchet.loop.ledger import NAME as LEDGER
from ratchet.loop.ledger import sync_folder, writing
from ratchet.loop.objects import Entry, Objects, index_info
from ratchet.loop.plumbing import Git, first_line
from ratchet.process.sandbox.folder import read_file
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
            status = os.lstat(self._git.root / path)
            if not stat.S_ISREG(status.st_mode):
                raise Refusal(Status.USAGE, f"{path} is not a regular file: name the file itself")
            data = read_file(self._git.root / path, _FILE_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:  # it was replaced just now, or is too large
            raise Refusal(Status.USAGE, f"{error}: name the kernel file itself") from None
        except OSError as error:
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
        target = self._git.root / path
        with writing(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            sync_folder(target.parent)

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
        target = self._git.root / path
        with writing(path):
            self._replace(target, self._spare(target), data)
            sync_folder(target.parent)

    def restore(self, path: str, *, blob: str | None, judged: str | None) -> bool:
        """Brings the file ``path`` back to ``blob`` (None: no file), if its content is still ``judged``.

        Returns False, and changes nothing, if the file holds something else by now, or is no regular file.
        """
        target = self._git.root / path
        spare = self._spare(target)
        with writing(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            spare.unlink()  # of a run that was killed here
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
        with writing(path):
            if blob is None:
                target.unlink()
            else:
                data = self._git.output("cat-file", "--filters", f"--path={path}", blob)
                self._replace(target, spare, data)
            sync_folder(target.parent)
        return True

    def _spare(self, target: Path) -> Path:
        """Where a file is written before it is renamed: out of the work tree, unless that is another file system."""
        folder = self._git.state_dir
        if target.parent.is_dir() and target.parent.stat().st_dev != folder.stat().st_dev:
            folder = target.parent
        return folder / f".{hashlib.sha256(os.fsencode(target)).hexdigest()[:12]}.ratchet"

    @staticmethod
    def _replace(target: Path, spare: Path, data: bytes) -> None:
        """Write beside and rename, keeping mode and owner."""
        status = target.stat() if target.exists() else None
        try:
            with open(spare, "wb") as file:
                if status:
                    os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
                    with contextlib.suppress(PermissionError):
                        os.fchown(file.fileno(), status.st_uid, status.st_gid)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(spare, target)
        except OSError:
            spare.unlink(missing_ok=True)
            raise


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
