"""The judge's folder in a clone, and the secret in it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from ratchet.process import key
from ratchet.process.sandbox.folder import read_file
from ratchet.values.status import Refusal, Status

FOLDER = ".ratchet"
SECRET_BYTES = 32


def clone_folder(root: Path) -> Path:
    """``.ratchet`` in the repository: the judge's secret and cached references. Ignores itself in git.

    Raises:
      Refusal: ``LEDGER_UNWRITABLE``.
    """
    folder = root / FOLDER
    try:
        folder.mkdir(exist_ok=True)
        if not (folder / ".gitignore").exists():
            (folder / ".gitignore").write_text("*\n")
    except OSError as error:
        raise Refusal(
            Status.LEDGER_UNWRITABLE, f"cannot write {folder.name}/: {error.strerror}; make it writable"
        ) from None
    return folder


def secret_of(root: Path) -> bytes:
    """The clone's own secret, from which all seeds follow; made anew where it is lost. It stays with the judge.

    What is in the tree is not it: with this machine's key it makes the secret, so reading or choosing it is no use.

    Raises:
      Refusal: as ``clone_folder``.
    """
    path = clone_folder(root) / "secret"
    if path.is_symlink() or not path.is_file() or path.stat().st_size != SECRET_BYTES:
        temporary = path.with_name(f"secret.{os.getpid()}")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(descriptor, secrets.token_bytes(SECRET_BYTES))
        os.fsync(descriptor)
        os.close(descriptor)
        temporary.replace(path)
    own, stored = key.known(), read_file(path, SECRET_BYTES)
    return own.digest("secret", stored) if own else stored
