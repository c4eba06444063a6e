"""An interrupt while the program is still being imported. Imports nothing heavy itself."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

from ratchet.values.status import Status


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """While the block runs, Ctrl-C ends the process at once, with one line: nothing has begun that has to be undone.

    A KeyboardInterrupt in the middle of an import would be a traceback, or any other error where C code turns it into
    one. An interrupt that is ignored stays ignored. Only the main thread is interrupted; in another nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(*_: object) -> None:
    os.write(2, f"{Status.INTERRUPTED.name}: {Status.INTERRUPTED.meaning}\n".encode())
    os._exit(Status.INTERRUPTED.exit_code)
