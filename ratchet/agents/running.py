"""One run of a user's command: a time limit, a transcript, few places to write to, and nothing left of it after."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ratchet.jail import launcher, system, writes
from ratchet.values.status import Refusal, Status

_POLL_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a command ended."""

    exit_code: int | None
    """Negative for a signal; None where it was ended at its time limit."""
    seconds: float


def run(
    words: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    transcript: Path,
    seconds: float,
    writable: Sequence[Path],
) -> Run:
    """Run a command to its end, or to its time limit; whatever it started ends with it.

    Raises:
        Refusal: NOT_FOUND where it cannot be started.
    """
    system.prctl(system.PR_SET_CHILD_SUBREAPER, 1)  # what it starts and leaves becomes a child of ours
    began = time.monotonic()
    with transcript.open("xb") as said:
        try:
            process = subprocess.Popen(
                words,
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(writes.confine, [os.fspath(path) for path in writable]),  # noqa: PLW1509 - no threads here
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise Refusal(Status.NOT_FOUND, f"the command {words[0]!r:.100} cannot be started: {error}") from None
    try:
        code = _ended(process.pid, began + seconds)
    finally:
        launcher.sweep(process.pid)
        process.returncode = 0  # it is reaped: nobody has to wait for it any more
    return Run(exit_code=code, seconds=time.monotonic() - began)


def remove(folder: Path) -> None:
    """Take a folder away that a command could write, with the read-only folders in it."""
    for parent, names, _ in os.walk(folder):
        for name in names:
            if not os.path.islink(path := os.path.join(parent, name)):
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _ended(pid: int, until: float) -> int | None:
    """Exit code of a child, which stays a zombie; None at the time limit."""
    while True:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is not None:
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        if time.monotonic() >= until:
            return None
        time.sleep(_POLL_S)
