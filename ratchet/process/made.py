"""Which folders of a repository this tool made: only those are removed. Also what it found that stays true.

Each has a mark in ``.ratchet/made``, a file with a MAC of this machine's key over its name. What a user, a clone or
somebody else put in a place of such a name has none, and stays.
"""

from __future__ import annotations

import contextlib
import hashlib

from ratchet.process import key
from ratchet.process.root import Root

FOLDER = ".ratchet"
_MARKS = f"{FOLDER}/made"
_PURPOSE = "made"
_MOST_BYTES = 256


def own_folder(root: Root) -> None:
    """``.ratchet`` in the repository, which ignores itself in git. Raises OSError."""
    root.make_folder(FOLDER)
    ignore = f"{FOLDER}/.gitignore"
    if not root.exists(ignore):
        root.write(ignore, b"*\n", flush=False)


def mark(root: Root, name: str) -> None:
    """Says of a folder, by its name below the root, that it is made here and may be removed; or of a text that it was
    found true here. Raises OSError."""
    own_folder(root)
    root.make_folder(_MARKS)
    root.write(_mark(name), _mac(name), flush=False)


def is_here(root: Root, name: str) -> bool:
    """Whether this machine made the folder of that name, or found that; where there is no key nobody can say so."""
    try:
        return bool(mac := _mac(name)) and root.read(_mark(name), _MOST_BYTES) == mac
    except (OSError, ValueError):
        return False


def remove(root: Root, name: str) -> bool:
    """Removes a folder that was made here; whether it is gone."""
    if not is_here(root, name) or not root.remove(name):
        return False
    with contextlib.suppress(OSError):
        root.unlink(_mark(name))
    return True


def _mark(name: str) -> str:
    return f"{_MARKS}/{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _mac(name: str) -> bytes:
    own = key.known()
    return own.mac(_PURPOSE, name.encode()).encode() if own else b""
