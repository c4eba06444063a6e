"""Standard output and error that end no experiment: what they cannot take is left out, and the exit code stays true."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO


class Lasting:
    """A stream of text whose reader may go away and whose disk may be full.

    After the first error it writes to nowhere. A character that its encoding lacks is written as an escape.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None
        """What kept it from being written, if anything did."""
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError as error:
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def check(self) -> None:
        """Raises, once:
        OSError: something could not be written, though there was somebody to read it.
        """
        self.flush()
        error, self.error = self.error, None
        if error is not None and not isinstance(error, BrokenPipeError):
            raise error

    def _give_up(self, error: OSError) -> None:
        """The descriptor leads nowhere from now on: what is buffered must not fail once more as the process ends."""
        self.error = self.error or error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def lasting() -> Iterator[Lasting]:
    """While the block runs, both standard streams last, also where the caller closed them; yields the output."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # Takes the lowest free number, this one: else a file of ours would, and be written to as a stream.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    before = sys.stdout, sys.stderr
    streams = (stream or os.fdopen(number, "w", closefd=False) for number, stream in enumerate(before, 1))
    sys.stdout, sys.stderr = (Lasting(stream) for stream in streams)  # type: ignore[assignment]
    try:
        yield sys.stdout  # type: ignore[misc]
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before
