"""The key of this user on this machine, by which references and rows are known to have been made here.

It is a file outside every repository, ``~/.config/pallas-ratchet/key``: 64 hex digits, readable by its owner alone,
made on first use. The home folder is that of the password file: no environment variable moves it. The jail of a
kernel file does not show it. What the key signs is a MAC (HMAC-SHA256) over a purpose and texts.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import pwd
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path

_BYTES = 32
_FOLDER = Path(".config", "pallas-ratchet")
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NoKey(Exception):
    """There is no key that could be used; its text says why."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """The key."""

    secret: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """16 hex digits that identify the key and tell nothing of it."""
        return self.digest("name").hex()[:16]

    def digest(self, purpose: str, *texts: bytes) -> bytes:
        """HMAC-SHA256 over a purpose and texts, 32 bytes. No two lists of texts are hashed as the same bytes."""
        parts = (purpose.encode(), *texts)
        return hmac.digest(self.secret, b"".join(b"%d:%b" % (len(part), part) for part in parts), "sha256")

    def mac(self, purpose: str, *texts: bytes) -> str:
        """The MAC as it is written down: the key's name and 64 hex digits."""
        return f"{self.name} {self.digest(purpose, *texts).hex()}"

    def made(self, mac: str, purpose: str, *texts: bytes) -> bool:
        """Whether this key made ``mac`` for these texts."""
        return hmac.compare_digest(mac.encode("utf-8", "replace"), self.mac(purpose, *texts).encode())


def path() -> Path:
    """Where the key is.

    Raises:
      NoKey: the password file names no home folder for this user.
    """
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir) / _FOLDER / "key"
    except KeyError:
        raise NoKey(f"user {os.getuid()} has no home folder") from None


def load(*, make: bool = True) -> Key:
    """The key; a new one where there is none and ``make`` is true.

    Raises:
      NoKey: it cannot be read or made, or is not this user's alone.
    """
    file = path()
    try:
        if make and not os.path.lexists(file):
            _make(file)
        descriptor = os.open(file, _FILE)
    except OSError as error:
        raise NoKey(f"{file}: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as opened:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
            raise NoKey(f"{file} is not a file of this user's alone: `chmod 600` it, or remove it and all it signed")
        text = opened.read(2 * _BYTES + 2).strip()
    try:
        secret = bytes.fromhex(text.decode())
    except ValueError:
        secret = b""
    if len(secret) != _BYTES:
        raise NoKey(f"{file} does not hold {2 * _BYTES} hex digits: remove it to have a new key")
    return Key(secret=secret)


def known() -> Key | None:
    """``load``, or None where there is no key."""
    try:
        return load()
    except NoKey:
        return None


def _make(file: Path) -> None:
    """Whole or not at all; where two make one at once, the first stays."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_name(f".key-{os.getpid()}-{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(secrets.token_bytes(_BYTES).hex().encode() + b"\n")
            opened.flush()
            os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)
