"""Progress of a verdict on standard error: a live line on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

import rich.progress
from rich.console import Console
from rich.text import Text

from ratchet.view.text import clean


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
            self._step(name)

    def _step(self, name: str) -> None:
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
        with self._lock:
            self._done(name, summary, seconds, ok=ok)

    def _done(self, name: str, summary: str, seconds: float, *, ok: bool) -> None:
        self.close()
        said = f"{clean(name)}: {clean(summary)}" if clean(summary) else clean(name)
        if not self._live:
            failed = "" if ok else " FAILED"
            self._console.print(Text(f"[{self._clock() - self._began:5.1f} s] {said} ({seconds:.1f} s){failed}"))
            return
        mark = ("✓ ", "green") if ok else ("✗ ", "bold red")
        self._console.print(Text.assemble(mark, said, (f"  {seconds:.1f} s", "dim")))

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
