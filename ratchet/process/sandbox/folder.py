"""A folder that a child writes to, as the judge handles it: by descriptor, regular files only, of limited size.

Nothing that a child leaves there can make the judge follow a link, wait on a pipe, fill its memory or raise while it
cleans up. Those of one judge are in a scratch folder, which a lease keeps from being taken for left over.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DEEPEST = 50
PREFIX, LEASE = "ratchet-", "lease"
"""Of a scratch folder's name; the file in it that is locked while its judge lives."""
_PIECE = 1 << 26
"""Bytes that are copied by one call of the system."""


class Folder:
    """A folder by its descriptor, which it owns."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def at(cls, path: Path) -> Folder:
        """The folder at a path; its last part is no link."""
        return cls(os.open(path, _FOLDER))

    def write(self, name: str, data: bytes) -> None:
        """A new regular file.

        Raises:
          OSError: it cannot be written, or something of that name is there.
        """
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(name, new, 0o600, dir_fd=self._descriptor), "wb") as file:
            file.write(data)

    def unlink(self, name: str) -> None:
        """Take a file away, or the link that is in its place; nothing where there is none."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def read(self, name: str, limit: int) -> bytes:
        """The contents of a regular file.

        Raises:
          OSError: it is not there, or a link.
          ValueError: it is no regular file, or larger than ``limit`` bytes.
        """
        descriptor = os.open(name, _FILE, dir_fd=self._descriptor)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError(f"{name} is no regular file")
            data = file.read(limit + 1)
        if len(data) > limit:
            raise ValueError(f"{name} is larger than {limit} bytes")
        return data

    def move(self, target: Path) -> None:
        """Move all regular files below to ``target``; see :func:`take`."""
        with os.scandir(self._descriptor) as entries:
            below = [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in entries]
        for name, mode in below:
            if stat.S_ISREG(mode):
                self._move_file(name, target / name)
            elif stat.S_ISDIR(mode):
                (target / name).mkdir(exist_ok=True)
                inner = Folder(os.open(name, _FOLDER, dir_fd=self._descriptor))
                try:
                    inner.move(target / name)
                finally:
                    inner.close()

    def _move_file(self, name: str, target: Path) -> None:
        try:
            os.rename(name, target, src_dir_fd=self._descriptor)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            descriptor = os.open(name, _FILE, dir_fd=self._descriptor)
            with os.fdopen(descriptor, "rb"):
                _copy(descriptor, target)
            os.unlink(name, dir_fd=self._descriptor)

    def used(self, *, files: int) -> tuple[int, int]:
        """Entries below, and bytes on disk. Counting ends beyond ``files`` entries."""
        count = size = 0
        for state in _states(self._descriptor):
            count, size = count + 1, size + state.st_blocks * 512
            if count > files:
                break
        return count, size

    def close(self) -> None:
        """Give the descriptor back. Safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _states(descriptor: int, depth: int = 0) -> Iterator[os.stat_result]:
    """Of everything below a folder, so far down; what vanishes meanwhile or cannot be read is left out."""
    with contextlib.suppress(OSError), os.scandir(descriptor) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                state = entry.stat(follow_symlinks=False)
                yield state
                if stat.S_ISDIR(state.st_mode) and depth < _DEEPEST:
                    below = os.open(entry.name, _FOLDER, dir_fd=descriptor)
                    try:
                        yield from _states(below, depth + 1)
                    finally:
                        os.close(below)


def _copy(descriptor: int, target: Path) -> None:
    """Write what a descriptor holds to ``target``; nothing of what is no regular file."""
    with target.open("wb") as copy:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            while os.sendfile(copy.fileno(), descriptor, None, _PIECE):
                pass


def take(source: Path, target: Path) -> None:
    """Move the regular files below ``source`` to ``target``, an existing folder on the same disk or another.

    Links, pipes and what else a process can leave stay where they are.

    Raises:
      OSError: a file cannot be written.
    """
    folder = Folder.at(source)
    try:
        folder.move(target)
    finally:
        folder.close()


def remove(path: Path) -> bool:
    """Remove a folder and all below it, however deep, whatever its permissions; whether it is gone. Never raises."""
    try:
        above = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return not path.exists()
    try:
        return remove_at(above, path.name)
    finally:
        os.close(above)


def remove_at(above: int, name: str) -> bool:
    """The same of a folder in one that is open. Where a link or a file has the name, it stays."""
    with contextlib.suppress(OSError):
        top = _own(name, above)
        try:
            with contextlib.suppress(OSError):
                _empty(top)
        finally:
            os.close(top)
        os.rmdir(name, dir_fd=above)
    try:
        os.stat(name, dir_fd=above, follow_symlinks=False)
    except OSError:
        return True
    return False


def protect(top: Path, *, but: Path) -> None:
    """Take the permission to write from a folder and all below it, links and one file left out."""
    for parent, _, files in os.walk(top):
        for path in (*(Path(parent, name) for name in files), Path(parent)):
            if path != but and not path.is_symlink():
                path.chmod(path.stat().st_mode & ~0o222)


def _own(name: str, above: int) -> int:
    """A folder, opened, after its owner got all permissions. No link is followed, one that comes meanwhile neither."""
    there = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        os.chmod(f"/proc/self/fd/{there}", 0o700)
        return os.open(".", _FOLDER, dir_fd=there)
    finally:
        os.close(there)


def _empty(top: int) -> None:
    """Every folder's folders are moved up to the top first, so that no depth is too deep."""
    number = 0
    while folders := _unlink_files(top):
        for name in folders:
            below = _own(name, top)
            try:
                for inner in _unlink_files(below):
                    number += 1
                    os.close(_own(inner, below))  # what is moved has to be writable
                    os.rename(inner, f".moved-{os.getpid()}-{number}", src_dir_fd=below, dst_dir_fd=top)
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=top)


def _unlink_files(folder: int) -> list[str]:
    """Remove everything in a folder except its folders, whose names are returned."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
    return folders


class ScratchFolder:
    """A new folder for temporary files, held for as long as this process lives."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lease = (self.root / f".{LEASE}").open("w")
        fcntl.flock(self._lease, fcntl.LOCK_EX)
        (self.root / f".{LEASE}").rename(self.root / LEASE)

    def close(self) -> None:
        """Remove it, with all that is in it. Safe to call twice."""
        self._lease.close()
        remove(self.root)


def sweep(folder: Path) -> None:
    """Remove what judges that were killed left in ``folder``: scratch folders of this user that nobody holds."""
    for left in folder.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(left / LEASE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_uid == os.getuid() and not left.is_symlink():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove(left)
            finally:
                os.close(descriptor)
