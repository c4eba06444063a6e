"""Evidence of experiments on disk: what is kept, what is pruned, and the digest that a ledger row carries.

The rule: the newest 20 experiments keep their evidence, and so does whatever the caller names (the
incumbent). If all of it together is more than 1 GiB, the oldest goes first, but never the newest
experiment or a named one. Ledger rows are never touched, nor is a folder that no experiment is named
after or that this machine did not make; links are neither followed nor removed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Collection, Sequence
from pathlib import Path, PurePath

from ratchet.process import made, paths
from ratchet.process.root import Root
from ratchet.values.status import Refusal, Status

FOLDERS = ("hlo_dumps", "profile_data")
"""Each holds one folder per experiment, named by its id."""

KEEP_NEWEST = 20
MAX_BYTES = 1 << 30


def prune(
    root: Path,
    ids: Sequence[str],
    *,
    keep: Collection[str] = (),
    newest: int = KEEP_NEWEST,
    max_bytes: int = MAX_BYTES,
) -> tuple[str, ...]:
    """Remove old evidence below ``root`` by the rule above; returns the ids whose evidence went, oldest first.

    ``ids`` are all experiments of the ledger, oldest first. What cannot be removed (no permission) is
    left and not reported: evidence that stays too long is no reason to fail an experiment.
    """
    top = Root(root)
    ordered = [name for name in dict.fromkeys(reversed(ids)) if _is_name(name)]  # newest first
    safe = {*ordered[:1], *keep}
    there = {name for folder in FOLDERS for name in top.names(folder)}.intersection(ordered)
    sizes = {name: sum(_size(top, one) for one in folders) for name in there if (folders := _folders(top, name))}
    total, removed = sum(sizes.values()), []
    for place, name in reversed([*enumerate(ordered)]):
        if name in sizes and name not in safe and (place >= newest or total > max_bytes):
            total -= sizes[name]
            for folder in _folders(top, name):
                made.remove(top, folder)
            if not _folders(top, name):
                removed.append(name)
    return tuple(removed)


def keep(texts: Path, folder: Path) -> None:
    """Copy the files below ``texts`` to ``folder``: all of them, or none.

    Raises:
      Refusal: ``NO_SPACE`` or ``LEDGER_UNWRITABLE``.
    """
    source = Root(texts)
    try:
        paths.make_folder(folder.parent)
        target, name = paths.of(folder)
        for file in source.files():
            target.make_folder(PurePath(name, file).parent)
            with source.open(file) as given:
                target.take(given, f"{name}/{file}")
    except OSError as error:
        with contextlib.suppress(OSError):
            paths.remove(folder)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        message = f"the evidence {folder.parent.name}/{folder.name} cannot be written: {error.strerror}"
        todo = "free some space" if full else "make it writable"
        raise Refusal(Status.NO_SPACE if full else Status.LEDGER_UNWRITABLE, f"{message}; {todo}") from error


def digest(root: Path, experiment_id: str) -> str:
    """SHA-256 over what the judge wrote for one experiment; ``""`` where there is nothing.

    It is the hash of a listing as ``sha256sum`` prints it, sorted by path relative to ``root``. Of
    ``profile_data`` only traces (``*.xplane.pb``) count, because XProf puts its caches beside them.
    Raises ``OSError`` if a file cannot be read, ``ValueError`` if the id is no folder name.
    """
    if not _is_name(experiment_id):
        raise ValueError(f"not an experiment's id: {experiment_id!r}")
    top, lines = Root(root), []
    for folder in _folders(top, experiment_id):
        for file in top.files(folder):
            if folder.startswith("profile_data/") and not file.endswith(".xplane.pb"):
                continue
            with top.open(file) as stream:
                content = hashlib.file_digest(stream, "sha256").hexdigest()
            lines.append((os.fsencode(file), content))
    listing = b"".join(content.encode() + b"  " + path + b"\n" for path, content in sorted(lines))
    return hashlib.sha256(listing).hexdigest() if listing else ""


def _is_name(experiment_id: str) -> bool:
    """Whether an id names a folder directly inside another: a ledger is text that anyone can edit."""
    return experiment_id not in ("", ".", "..") and not set(experiment_id) & {"/", os.sep, "\0"}


def _folders(root: Root, experiment_id: str) -> list[str]:
    """The experiment's real folders; a link in their place, or above them, is somebody else's."""
    return [folder for name in FOLDERS if root.is_folder(folder := f"{name}/{experiment_id}")]


def _size(root: Root, folder: str) -> int:
    return sum(state.st_size for _, state in root.states(folder) if stat.S_ISREG(state.st_mode))
