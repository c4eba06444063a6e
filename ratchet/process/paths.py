"""The opener for paths whose root the caller does not hold: each is opened below the repository that it is in.

Where it is in none, a folder for temporary files say, its own folder is the root.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from ratchet.process.root import MOST_BYTES, Name, Root, is_of_git


def of(path: Name) -> tuple[Root, str]:
    """The root of a path, and the name below it: the top of the outermost repository that it is in, else its folder."""
    whole = Path(os.path.abspath(path))
    top = next((one for one in reversed(whole.parents) if os.path.lexists(one / ".git")), whole.parent)
    root = Root(top)
    return root, root.name(whole)


def read(path: Name, limit: int = MOST_BYTES) -> bytes:
    """As ``Root.read``."""
    root, name = of(path)
    return root.read(name, limit)


def write(path: Name, data: bytes, *, flush: bool = False) -> None:
    """As ``Root.write``."""
    root, name = of(path)
    root.write(name, data, flush=flush)


def write_named(path: Path, data: bytes) -> None:
    """What a user asked for in a file: as ``write``, or to the device or pipe of that name in no repository."""
    root, name = of(path)
    state = root.state(name)
    if state is not None and not stat.S_ISREG(state.st_mode) and not os.path.lexists(root.path / ".git"):
        with open(path, "wb") as file:
            file.write(data)
    else:
        root.write(name, data, flush=False)


def exists(path: Name) -> bool:
    """Whether anything is there, links themselves; as ``Root.exists``."""
    root, name = of(path)
    return root.exists(name)


def is_file(path: Name) -> bool:
    """Whether a regular file is there."""
    root, name = of(path)
    return root.is_file(name)


def is_folder(path: Name) -> bool:
    """Whether a folder is there."""
    root, name = of(path)
    return root.is_folder(name)


def make_folder(path: Name) -> None:
    """A folder and those above it, unless they are there."""
    root, name = of(path)
    if os.path.lexists(root.path):
        root.make_folder(name)
    else:  # in no repository, and none of those above it is there
        make_folder(root.path)
        root.make_folder(name)


def files(folder: Name) -> Iterator[Path]:
    """All regular files below a folder, sorted in each; links are left out."""
    root, name = of(folder)
    return (root.path / one for one in root.files(name))


def unlink(path: Name) -> bool:
    """Take a file or a link away; whether there was one."""
    root, name = of(path)
    return root.unlink(name)


def remove(folder: Name) -> bool:
    """As ``Root.remove``."""
    root, name = of(folder)
    return root.remove(name)


def matching(root: Root, pattern: str) -> list[str]:
    """The regular files whose name fits a pattern as ``Path.glob`` has them, sorted; nothing of ``.git``."""
    name = root.name(pattern)
    if is_of_git(name):
        return []
    if not glob.has_magic(pattern):
        return [name] if root.is_file(name) else []
    parts = name.split("/")
    fixed = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    below = root.files("/".join(parts[:fixed]) or ".", without=".git")
    return sorted(one for one in below if _fits(one.split("/"), parts))


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern or pattern[0] != "**":
        first = bool(pattern and parts) and fnmatch.fnmatchcase(parts[0], pattern[0])
        return first and _fits(parts[1:], pattern[1:]) if pattern else not parts
    return any(_fits(parts[number:], pattern[1:]) for number in range(len(parts) + 1))
