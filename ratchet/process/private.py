"""The judge's own folder outside every repository: what an author of kernels cannot reach by writing in the tree."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

_NAME = "pallas-ratchet"


def private_folder() -> Path | None:
    """``~/.cache/pallas-ratchet`` of the user who runs this, readable by nobody else; None where it cannot be.

    The home folder is that of the password file: no environment variable moves it.
    """
    try:
        folder = Path(pwd.getpwuid(os.getuid()).pw_dir, ".cache", _NAME)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.lstat()
    except (KeyError, OSError):
        return None
    ours = state.st_uid == os.getuid() and not state.st_mode & 0o077 and folder.is_dir() and not folder.is_symlink()
    return folder if ours and os.access(folder, os.W_OK) else None
