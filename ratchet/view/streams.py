"""Standard output and error: streams that end no experiment where they cannot be written, and progress of a verdict."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import rich.progress
from rich.console import Console
from rich.text import Text

from ratchet.view.text import clean


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


class Progress:
    """Says which step of a verdict is running, for how long, and how each one ended.

    Use it as a context manager, or call ``close``, so that the terminal gets its cursor back.
    """

    def __init__(self, stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = Console(file=stream or sys.stderr, highlight=False, soft_wrap=True)
        self._live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._clock = clock
        self._began = clock()
        self._bar: rich.progress.Progress | None = None
        self._lock = threading.RLock()  # steps that run beside each other speak from threads of their own

    def step(self, name: str) -> None:
        """A step begins."""
        with self._lock:
            if not self._live:
                self._console.print(Text(f"[{self._clock() - self._began:5.1f} s] {clean(name)} …"))
                return
            self.close()
            self._bar = rich.progress.Progress(
                rich.progress.SpinnerColumn(),
                rich.progress.TextColumn("{task.description}", markup=False),
                rich.progress.TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.add_task(clean(name), total=None)
            self._bar.start()

    def done(self, name: str, summary: str, seconds: float, ok: bool) -> None:
        """A step ended after ``seconds``; ``ok`` is whether the verdict goes on."""
        said = f"{clean(name)}: {clean(summary)}" if clean(summary) else clean(name)
        with self._lock:
            self.close()
            if self._live:
                mark = ("✓ ", "green") if ok else ("✗ ", "bold red")
                self._console.print(Text.assemble(mark, said, (f"  {seconds:.1f} s", "dim")))
            else:
                failed = "" if ok else " FAILED"
                self._console.print(Text(f"[{self._clock() - self._began:5.1f} s] {said} ({seconds:.1f} s){failed}"))

    def close(self) -> None:
        """Take the live line away."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
