"""The judge's folder in a clone, and the secret in it."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path

from ratchet.process import key, made
from ratchet.process.root import Root
from ratchet.values.status import Refusal, Status

FOLDER = made.FOLDER
SECRET_BYTES = 32


def clone_folder(root: Path) -> Path:
    """``.ratchet`` in the repository: the judge's secret and cached references. Ignores itself in git.

    Raises:
      Refusal: ``LEDGER_UNWRITABLE``.
    """
    try:
        made.own_folder(Root(root))
    except OSError as error:
        raise Refusal(Status.LEDGER_UNWRITABLE, f"cannot write {FOLDER}/: {error.strerror}; make it writable") from None
    return root / FOLDER


def secret_of(root: Path) -> bytes:
    """The clone's own secret, from which all seeds follow; made anew where it is lost. It stays with the judge.

    What is in the tree is not it: with this machine's key it makes the secret, so reading or choosing it is no use.

    Raises:
      Refusal: as ``clone_folder``.
    """
    top, name = Root(root), f"{FOLDER}/secret"
    clone_folder(root)
    try:
        state = top.state(name)
        if state is None or not stat.S_ISREG(state.st_mode) or state.st_size != SECRET_BYTES:
            if state is not None and stat.S_ISDIR(state.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            top.write(name, secrets.token_bytes(SECRET_BYTES), mode=0o600)
        own, stored = key.known(), top.read(name, SECRET_BYTES)
    except OSError as error:
        message = f"cannot keep {name}: {error.strerror}; remove it, it is made anew"
        raise Refusal(Status.LEDGER_UNWRITABLE, message) from None
    return own.digest("secret", stored) if own else stored
