"""The one opener: files of a work tree, of ``.git`` and of ``.ratchet`` are reached from a descriptor of their root.

Whoever can write into a repository can plant links, pipes, hard links and files of known names there. So no link is
followed below a root, and no name leads out of it: ``openat2`` with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, and where
the system has none a walk from folder to folder. Only regular files are opened; what is written is a new file of a
name that nobody can know, renamed over the old one. The root's own path is the user's, who may have links in it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import operator
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path, PurePath
from typing import BinaryIO

from ratchet.process.sandbox import folder as folders
from ratchet.process.sandbox.system import openat2

MOST_BYTES = 1 << 30
"""Of a file that is read, where its reader says no less."""
Name = str | os.PathLike[str]
"""Relative to the root, or absolute and below it."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_REGULAR = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_PIECE = 1 << 20
_TEMPORARY = re.compile(r"\.new-[0-9a-f]{16}")
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.ENAMETOOLONG)
_LINK = "a symbolic link is in its place or above it, and none is followed here: put the file itself there"


def is_of_git(name: str) -> bool:
    """Whether a name below a root is git's own, however it is written: some file systems take ``.GIT`` for it."""
    return ".git" in name.lower().split("/")


def _walk(top: int, name: str, flags: int, mode: int) -> int:
    """As ``openat2``, by one open for each folder on the way."""
    *above, last = name.split("/")
    here = os.dup(top)
    try:
        for part in above:
            here, before = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=here), here
            os.close(before)
        return os.open(last, flags | os.O_NOFOLLOW, mode, dir_fd=here)
    finally:
        os.close(here)


@functools.cache
def has_openat2() -> bool:
    """Whether the system lets this process use it: Linux before 5.6 and some containers do not."""
    top = os.open("/", _FOLDER)
    try:
        os.close(openat2(top, ".", _FOLDER, 0))
    except OSError:
        return False
    finally:
        os.close(top)
    return True


class Unfit(OSError, ValueError):
    """What is there is no regular file, too large, or has another name too; its text says which."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EINVAL, text)

    def __str__(self) -> str:
        return str(self.strerror)


class Root:
    """A folder below which files are read, written, listed, locked and removed. Holds no descriptor between calls.

    All methods raise ``OSError`` as the system does, ELOOP where a link is in the way and EXDEV for a name that leads
    out of the root.
    """

    def __init__(self, path: Name) -> None:
        self.path = Path(os.path.abspath(path))

    def __repr__(self) -> str:
        return f"Root({str(self.path)!r})"

    def name(self, name: Name) -> str:
        """A name as it is below the root, ``.`` for the root itself."""
        text = os.fspath(name)
        if text.startswith("/"):
            top = os.fspath(self.path)
            if text != top and not text.startswith(top.rstrip("/") + "/"):
                raise OSError(errno.EXDEV, f"it is outside of {top}", text)
            text = text[len(top) :]
        parts = [part for part in text.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise OSError(errno.EXDEV, f"`..` leads out of {self.path}", text)
        return "/".join(parts) or "."

    @contextlib.contextmanager
    def _top(self) -> Iterator[int]:
        descriptor = os.open(self.path, _FOLDER)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, name: Name, flags: int, mode: int = 0o666) -> int:
        inside = self.name(name)
        with self._top() as top:
            try:
                return (openat2 if has_openat2() else _walk)(top, inside, flags, mode)
            except OSError as error:
                linked = error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and self._has_link(top, inside))
                code = errno.ELOOP if linked else error.errno
                raise OSError(code, _LINK if linked else error.strerror, str(self.path / inside)) from None

    @contextlib.contextmanager
    def _opened(self, name: Name, flags: int) -> Iterator[int]:
        descriptor = self._open(name, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _has_link(self, top: int, inside: str) -> bool:
        """Whether a link is on the way, of a name that could not be opened: only for what is said of it."""
        parts = inside.split("/")
        for number in range(len(parts)):
            with contextlib.suppress(OSError):
                if os.readlink("/".join(parts[: number + 1]), dir_fd=top):
                    return True
        return False

    @contextlib.contextmanager
    def _above(self, name: Name) -> Iterator[tuple[int, str]]:
        """The folder of a name by descriptor, and the last part of the name."""
        above, _, last = self.name(name).rpartition("/")
        if last == ".":
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(self.path))
        with self._opened(above or ".", _FOLDER) as descriptor:
            yield descriptor, last

    def open(self, name: Name) -> BufferedReader:
        """A regular file, to be read.

        Raises:
          Unfit: it is something else.
        """
        descriptor = self._open(name, os.O_RDONLY | _REGULAR)
        try:
            _check(descriptor, name)
        except Unfit:
            os.close(descriptor)
            raise
        return os.fdopen(descriptor, "rb")

    def read(self, name: Name, limit: int = MOST_BYTES) -> bytes:
        """The contents of a regular file.

        Raises:
          Unfit: it is something else, or larger than ``limit`` bytes.
        """
        with self.open(name) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise Unfit(f"{self.name(name)} is larger than {limit} bytes")
        return data

    def state(self, name: Name) -> os.stat_result | None:
        """Of what has this name, links themselves; None where there is nothing, or a link above it."""
        try:
            if self.name(name) == ".":
                return os.stat(self.path)
            with self._above(name) as (above, last):
                return os.stat(last, dir_fd=above, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise

    def exists(self, name: Name) -> bool:
        """Whether anything has this name, a link that leads nowhere too."""
        return self.state(name) is not None

    def is_file(self, name: Name) -> bool:
        """Whether a regular file has this name."""
        state = self.state(name)
        return state is not None and stat.S_ISREG(state.st_mode)

    def is_folder(self, name: Name) -> bool:
        """Whether a folder has this name."""
        state = self.state(name)
        return state is not None and stat.S_ISDIR(state.st_mode)

    def names(self, name: Name = ".") -> list[str]:
        """What is in a folder, sorted; nothing where there is no such folder."""
        try:
            with self._opened(name, _FOLDER) as descriptor:
                return sorted(os.listdir(descriptor))
        except OSError as error:
            if error.errno in _NOT_THERE:
                return []
            raise

    def states(self, name: Name = ".", *, without: str = "") -> Iterator[tuple[str, os.stat_result]]:
        """All that is below a folder but folders, sorted in each: the name below the root, and the state of that.

        Nothing is followed, and nothing called ``without`` is looked at.
        """
        for inner, state in self._scanned(self.name(name)):
            if PurePath(inner).name == without:
                continue
            if stat.S_ISDIR(state.st_mode):
                yield from self.states(inner, without=without)
            else:
                yield inner, state

    def entries(self, name: Name = ".", *, without: str = "") -> Iterator[str]:
        """The names of ``states``."""
        return (inner for inner, _ in self.states(name, without=without))

    def files(self, name: Name = ".", *, without: str = "") -> Iterator[str]:
        """The regular files of ``states``."""
        return (inner for inner, state in self.states(name, without=without) if stat.S_ISREG(state.st_mode))

    def links(self, name: Name = ".", *, levels: int = 50) -> Iterator[str]:
        """The symbolic links in a folder, and in those below it so many levels down."""
        for inner, state in self._scanned(self.name(name)):
            if stat.S_ISLNK(state.st_mode):
                yield inner
            elif stat.S_ISDIR(state.st_mode) and levels > 1:
                yield from self.links(inner, levels=levels - 1)

    def _scanned(self, folder: str) -> list[tuple[str, os.stat_result]]:
        """What is in a folder, sorted: names below the root, and states; nothing where there is no such folder."""
        found: list[tuple[str, os.stat_result]] = []
        before = "" if folder == "." else f"{folder}/"
        try:
            with self._opened(folder, _FOLDER) as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        found.append((before + entry.name, entry.stat(follow_symlinks=False)))
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
        return sorted(found, key=operator.itemgetter(0))

    def make_folder(self, name: Name, mode: int = 0o777) -> None:
        """A folder and those above it, unless they are there."""
        made = ""
        for part in self.name(name).split("/"):
            made = f"{made}/{part}".lstrip("/")
            if part != "." and not self.is_folder(made):
                with self._above(made) as (above, last), contextlib.suppress(FileExistsError):
                    os.mkdir(last, mode, dir_fd=above)
                if not self.is_folder(made):
                    linked = self.state(made)
                    what = _LINK if linked and stat.S_ISLNK(linked.st_mode) else os.strerror(errno.ENOTDIR)
                    raise OSError(errno.ENOTDIR, what, str(self.path / made))

    def write(
        self, name: Name, data: bytes, *, spare: Root | None = None, flush: bool = True, mode: int = 0o666
    ) -> None:
        """A file that holds ``data``, whole or not at all: it holds what it did, or this, whenever this is killed.

        Mode and owner of a file that is there are kept. ``spare`` is another folder for the new file until it is
        renamed, on the same disk; ``flush`` has both on the disk when this returns.
        """
        before, folder = self.state(name), "." if spare else PurePath(self.name(name)).parent
        with self._above(name) as (above, last), (spare or self).new(folder, mode) as (file, where, temporary):
            if before is not None and stat.S_ISREG(before.st_mode):
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
            file.write(data)
            file.flush()
            if flush:
                os.fsync(file.fileno())
            os.rename(temporary, last, src_dir_fd=where, dst_dir_fd=above)
            if flush:
                os.fsync(above)

    @contextlib.contextmanager
    def new(self, folder: Name, mode: int = 0o666) -> Iterator[tuple[BinaryIO, int, str]]:
        """A new file to be written and renamed: it, its folder by descriptor, its name. Removed where it still is."""
        name, flags = f".new-{secrets.token_hex(8)}", os.O_WRONLY | _NEW | os.O_CLOEXEC
        with (
            self._opened(folder, _FOLDER) as descriptor,
            os.fdopen(os.open(name, flags, mode, dir_fd=descriptor), "wb") as file,
        ):
            try:
                yield file, descriptor, name
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=descriptor)

    def create(self, name: Name, data: bytes, mode: int = 0o666) -> None:
        """A new file; raises FileExistsError where anything has its name."""
        with self._above(name) as (above, last):
            flags = os.O_WRONLY | _NEW | os.O_CLOEXEC
            with os.fdopen(os.open(last, flags, mode, dir_fd=above), "wb") as file:
                file.write(data)

    @contextlib.contextmanager
    def changed(self, name: Name, *, append: bool = False) -> Iterator[int]:
        """The descriptor of a regular file that is written in place, made where there is none.

        Raises:
          Unfit: it is something else, or has another name too, a hard link.
        """
        flags = os.O_RDWR | (os.O_APPEND if append else 0) | _REGULAR
        try:
            descriptor = self._open(name, flags)
        except FileNotFoundError:
            descriptor = self._open(name, flags | os.O_CREAT)
        try:
            _check(descriptor, name, only=True)
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def locked(self, name: Name, *, wait_s: float = 0.0) -> Iterator[None]:
        """Hold the lock that a file is; the system drops it should this process be killed.

        Raises:
          BlockingIOError: another process has held it for ``wait_s`` seconds.
        """
        deadline = time.monotonic() + wait_s
        with self.changed(name) as descriptor:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise
                    time.sleep(0.1)
            yield

    def is_locked(self, name: Name) -> bool:
        """Whether a process holds the lock that a file is, this one too; False where there is no such file."""
        try:
            with self.open(name) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # two that ask do not see each other
        except BlockingIOError:
            return True
        except FileNotFoundError:
            pass
        return False

    def take(self, given: BinaryIO, name: Name) -> bytes:
        """A copy of an open file, whole or not at all; returns the SHA-256 of what was written."""
        whole, folder = hashlib.sha256(), PurePath(self.name(name)).parent
        with self._above(name) as (above, last), self.new(folder) as (file, where, temporary):
            while data := given.read(_PIECE):
                whole.update(data)
                file.write(data)
            file.flush()
            os.rename(temporary, last, src_dir_fd=where, dst_dir_fd=above)
        return whole.digest()

    def rename(self, old: Name, new: Name) -> None:
        """Give a file another name, over what has it."""
        with self._above(old) as (source, before), self._above(new) as (target, after):
            os.rename(before, after, src_dir_fd=source, dst_dir_fd=target)

    def used(self, name: Name) -> None:
        """Say by its time that a folder was used now."""
        with self._opened(name, _FOLDER) as descriptor:
            os.utime(descriptor)

    def flush(self, name: Name) -> None:
        """Have a file, or a folder's entries, on the disk."""
        with self._opened(name, os.O_RDONLY | _REGULAR) as descriptor:
            os.fsync(descriptor)

    def unlink(self, name: Name) -> bool:
        """Take away a file, or the link in its place; whether there was one."""
        try:
            with self._above(name) as (above, last):
                os.unlink(last, dir_fd=above)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return False
            raise
        return True

    def remove(self, name: Name) -> bool:
        """Take away a folder and all below it, whatever its permissions; whether it is gone. Links are not followed.

        Where a link or a file has its name, nothing is done.
        """
        try:
            with self._above(name) as (above, last):
                return folders.remove_at(above, last)
        except OSError as error:
            return error.errno in _NOT_THERE and not self.exists(name)

    def sweep(self, name: Name = ".", *, older_s: float = 0.0) -> None:
        """Remove new files in a folder that were never renamed: their process was killed."""
        for entry in self.names(name):
            inner = f"{self.name(name)}/{entry}"
            state = self.state(inner) if _TEMPORARY.fullmatch(entry) else None
            if state is not None and stat.S_ISREG(state.st_mode) and time.time() - state.st_mtime >= older_s:
                with contextlib.suppress(OSError):
                    self.unlink(inner)


def _check(descriptor: int, name: Name, *, only: bool = False) -> None:
    """Raises Unfit where it is of no regular file, and with ``only`` where that has another name too."""
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        raise Unfit(f"{os.fspath(name)} is no regular file")
    if only and state.st_nlink > 1:
        raise Unfit(f"{os.fspath(name)} has another name too, a hard link: put a copy there")
