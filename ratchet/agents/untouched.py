"""What a command may not change, by hash: read before it starts and after it ended."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ratchet.exam.problem.problem import lock_path
from ratchet.loop import ledger
from ratchet.loop.history import History

_OF_GIT = ("HEAD", "config", "config.worktree", "packed-refs", "refs", "info", "hooks", "ratchet")
"""What a repository's git folder says, its objects and the lists of its work trees left out."""

Listing = Mapping[str, str]


def listing(paths: Iterable[Path]) -> Listing:
    """Every file and link below ``paths``, by its path: mode and SHA-256, or where a link leads. Folders too."""
    return {os.fspath(path): _what(path) for top in paths for path in _below(top)}


def of_tree(tree: Path, kernel: str) -> Listing:
    """A work tree, without its kernel file."""
    return {path: what for path, what in listing([tree]).items() if path != os.fspath(tree / kernel)}


def of_repository(root: Path, kernel: str) -> Listing:
    """What the loop goes by: refs, configuration, ledger, kernel file and its lock."""
    history = History(root)
    names = (ledger.NAME, kernel, lock_path(Path(kernel)))
    folders = dict.fromkeys((history.common_dir, history.state_dir.parent))
    return listing([*(folder / name for folder in folders for name in _OF_GIT), *(root / name for name in names)])


def changed(before: Listing, after: Listing) -> list[str]:
    """Paths that differ, sorted."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _below(top: Path) -> Iterator[Path]:
    if not os.path.lexists(top):
        return
    yield top
    if top.is_dir() and not top.is_symlink():
        for parent, folders, files in os.walk(top, followlinks=False):
            yield from (Path(parent, name) for name in (*folders, *files))


def _what(path: Path) -> str:
    try:
        status = path.lstat()
        if path.is_symlink():
            return f"link {os.readlink(path)!r}"
        if not path.is_file():
            return f"{status.st_mode:o}"
        with path.open("rb") as file:
            return f"{status.st_mode:o} {hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:  # gone meanwhile, or not readable any more
        return f"{error.strerror}"
