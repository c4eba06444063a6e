"""A weaker wall than a child's of the judge's: a program may read and run anything, and write in a few places only.

For a command of the user's, which needs its own files, other programs and the network.
"""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Sequence

from ratchet.process.sandbox import landlock, system

FILE_BYTES = 1 << 30
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts")


def confine(writable: Sequence[str]) -> None:
    """In a new process, before it becomes the program: from now on it writes below ``writable`` alone.

    Paths are of folders, or of single files, which are written in place. Where there is no Landlock, nothing is
    confined except the size of a file; it ends with the process that started it.
    """
    system.prctl(system.PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # a lower limit is there already
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    system.prctl(system.PR_SET_NO_NEW_PRIVS, 1)
    landlock.restrict_writes((*writable, *DEVICES))
