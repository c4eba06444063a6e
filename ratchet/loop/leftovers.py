"""Locks of git that a killed run leaves behind: nobody holds them, and every later git would refuse.

Git cannot know whether the owner of a lock file lives. Here that is known: the repository's own lock says that a run
was killed, or a run sees that its own git was, and /proc says whether any git still works in this repository. A git
that outlives the run that started it is waited for.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE_S = 10.0
_OF_WORKTREE = ("index.lock", "HEAD.lock")
_OF_REPOSITORY = ("packed-refs.lock", "HEAD.lock")
_REFS = ("refs/heads", "refs/ratchet")
_PROC = Path("/proc")


def clear(*, root: Path, common_dir: Path, git_dir: Path, patience_s: float = PATIENCE_S) -> tuple[str, ...]:
    """Removes git's locks in ``git_dir`` and ``common_dir`` if no git works there any more; says which those were.

    ``git_dir`` is that of the worktree in which it was killed, ``root`` the top of this one. Nothing is removed
    where a git is still at work after ``patience_s`` seconds, or where that cannot be known.
    """
    locks = sorted(set(_locks(common_dir, git_dir)))
    if not locks:
        return ()
    deadline = time.monotonic() + patience_s
    while working := _working(root, common_dir, git_dir):
        if time.monotonic() > deadline:
            return (f"git is at work here (process {working[0]}), so its locks stay: {_named(locks, common_dir)}",)
        time.sleep(0.05)
    if not _PROC.is_dir():
        return ()
    gone = []
    for lock in locks:
        with contextlib.suppress(OSError):
            lock.unlink()
            gone.append(lock)
    return (f"removed locks of git that a killed run left: {_named(gone, common_dir)}",) if gone else ()


def _locks(common_dir: Path, git_dir: Path) -> Iterator[Path]:
    yield from (git_dir / name for name in _OF_WORKTREE if (git_dir / name).is_file())
    yield from (common_dir / name for name in _OF_REPOSITORY if (common_dir / name).is_file())
    for folder in _REFS:
        yield from (path for path in (common_dir / folder).rglob("*.lock") if path.is_file())


def _named(locks: list[Path], common_dir: Path) -> str:
    return ", ".join(os.path.relpath(lock, common_dir) for lock in locks)


def _working(*folders: Path) -> list[int]:
    """Processes of git whose folder is one of these or below, or whose command line names one."""
    found = []
    for process in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if not (process / "comm").read_bytes().startswith(b"git"):
                continue
            here = Path(os.readlink(process / "cwd"))
            line = (process / "cmdline").read_bytes()
            if any(here.is_relative_to(folder) or os.fsencode(folder) in line for folder in folders):
                found.append(int(process.name))
    return found
