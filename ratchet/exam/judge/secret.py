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

_NAME, _LOCK = f"{FOLDER}/secret", f"{FOLDER}/secret.lock"
_WAIT_S = 60.0


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
    All that ask at once get the same, as threads of one verdict do.

    Raises:
      Refusal: as ``clone_folder``.
    """
    top = Root(root)
    clone_folder(root)
    try:
        if not _is_whole(top):
            with top.locked(_LOCK, wait_s=_WAIT_S):
                if not _is_whole(top):
                    top.write(_NAME, secrets.token_bytes(SECRET_BYTES), mode=0o600)
        own, stored = key.known(), top.read(_NAME, SECRET_BYTES)
    except OSError as error:
        message = f"cannot keep {_NAME} and its lock: {error.strerror}; remove both, they are made anew"
        raise Refusal(Status.LEDGER_UNWRITABLE, message) from None
    return own.digest("secret", stored) if own else stored


def _is_whole(top: Root) -> bool:
    """Whether there is a secret. Raises IsADirectoryError where a folder has its name."""
    state = top.state(_NAME)
    if state is not None and stat.S_ISDIR(state.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return state is not None and stat.S_ISREG(state.st_mode) and state.st_size == SECRET_BYTES
