"""References on their way between the judge's cache and the values child, which can reach only its own folder."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from ratchet.folder import copy_file

SUFFIX = ".npz"


def lend(kept: Path, folder: Path) -> Path:
    """Copy what is cached in ``kept`` and not there yet to a folder of that name in ``folder``, which is returned."""
    lent = folder / kept.name
    lent.mkdir(parents=True, exist_ok=True)
    if kept.is_dir():
        for file in kept.glob(f"*{SUFFIX}"):
            if file.is_file() and not (lent / file.name).exists():
                shutil.copyfile(file, lent / file.name)
    return lent


def collect(lent: Path, kept: Path) -> None:
    """Copy what the child made to the cache; each file is there whole or not at all."""
    known = {file.name for file in kept.glob(f"*{SUFFIX}")} if kept.is_dir() else set()
    made = [file for file in lent.glob(f"*{SUFFIX}") if file.name not in known and not file.name.startswith(".")]
    if not made:
        return
    kept.mkdir(parents=True, exist_ok=True)
    for file in made:
        beside = kept / f".{file.stem}.{os.getpid()}{SUFFIX}"
        try:
            copy_file(file, beside)
            beside.replace(kept / file.name)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
