"""References on their way between the judge's cache and the values child, which can reach only its own folder."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

from ratchet.folder import copy_file
from ratchet.values.status import Refusal, Status

SUFFIX = ".npz"


def lend(kept: Path, folder: Path) -> Path:
    """Copy what is cached in ``kept`` and not there yet to a folder of that name in ``folder``, which is returned."""
    lent = folder / kept.name
    lent.mkdir(parents=True, exist_ok=True)
    for file in kept.glob(f"*{SUFFIX}") if kept.is_dir() else ():
        if file.is_file() and not (lent / file.name).exists():
            shutil.copy2(file, lent / file.name)
    return lent


def collect(lent: Path, kept: Path) -> None:
    """Copy what the child made, or made again, to the cache; each file is there whole or not at all.

    Raises:
      Refusal: ``NO_SPACE``, or ``INFRASTRUCTURE`` where the cache cannot be written.
    """
    try:
        _collect(lent, kept)
    except OSError as error:
        status = Status.NO_SPACE if error.errno in (errno.ENOSPC, errno.EDQUOT) else Status.INFRASTRUCTURE
        what = f"the judge cannot keep what it computed in {kept}: {error.strerror or error}: free or repair that"
        raise Refusal(status, what) from None


def _collect(lent: Path, kept: Path) -> None:
    known = _states(kept)
    made = {name: state for name, state in _states(lent).items() if known.get(name) != state}
    if made:
        kept.mkdir(parents=True, exist_ok=True)
    for name, (_, changed) in made.items():
        beside = kept / f".{os.getpid()}.{name}"
        try:
            copy_file(lent / name, beside)
            os.utime(beside, ns=(changed, changed))
            beside.replace(kept / name)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)


def _states(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of the finished files of a folder, by name."""
    if not folder.is_dir():
        return {}
    files = [file for file in folder.glob(f"*{SUFFIX}") if not file.name.startswith(".")]
    return {file.name: (state.st_size, state.st_mtime_ns) for file in files for state in (file.lstat(),)}
