"""A folder of a running judge's, for what its children leave: one that nobody takes for left over."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

from ratchet.process.sandbox.folder import remove

PREFIX, LEASE = "ratchet-", "lease"


class Place:
    """A new folder, held for as long as this process lives."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lease = (self.root / f".{LEASE}").open("w")
        fcntl.flock(self._lease, fcntl.LOCK_EX)
        (self.root / f".{LEASE}").rename(self.root / LEASE)

    def close(self) -> None:
        """Remove it, with all that is in it. Safe to call twice."""
        self._lease.close()
        remove(self.root)


def sweep(folder: Path) -> None:
    """Remove what judges that were killed left in ``folder``: their folders are this user's, and nobody holds them."""
    for left in folder.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(left / LEASE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_uid == os.getuid() and not left.is_symlink():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove(left)
            finally:
                os.close(descriptor)
