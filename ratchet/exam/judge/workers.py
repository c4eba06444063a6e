"""The judge's child processes, kept between verdicts so that a sweep does not pay for set-up again."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
import threading
from pathlib import Path
from types import TracebackType

from ratchet.exam.candidate import tracer
from ratchet.exam.candidate.tracer import Trace, TraceRequest
from ratchet.exam.judge import asking, schedule, speculative
from ratchet.exam.judge.correctness import Executed
from ratchet.process.sandbox import warm
from ratchet.process.sandbox.child import Child
from ratchet.process.sandbox.scratch import Place, sweep
from ratchet.process.sandbox.warm import Warm
from ratchet.tpu.chips import Chip
from ratchet.tpu.compiler import compile as compiling
from ratchet.values.status import Refusal, Status

NEEDED_BYTES = 256 << 20
"""Free space wanted for programs, dumps and what a kernel file may write."""


class Workers:
    """One compiler, one values child, one schedule machine, and a fresh candidate child for every kernel file.

    All start at once, the compiler for ``chip``. The judge's own are forks of one process that imports JAX, begun
    already or here; the candidate's, which runs an author's code, of another, or imports it beside that. A child that
    died or was killed is replaced. With ``keep``, the next candidate child starts while the current kernel is still
    being judged, and candidate children are always forks; without ``compiles``, the TPU compiler starts only when it is
    asked for. With ``one_file``, all kernel files are versions of one, which a sweep traces in the same child, and the
    values child starts once it is asked for. With a ``seal``, warm processes that wait for work are used if they were
    made under it, and those that were begun wait for the next run. A kernel file that is traced already (``early``) is
    not traced again.
    """

    def __init__(
        self, chip: Chip, *, keep: bool = False, compiles: bool = True, one_file: bool = False, seal: str = ""
    ) -> None:
        free = shutil.disk_usage(tempfile.gettempdir()).free
        if free < NEEDED_BYTES:  # a child that cannot write would look like a kernel that fails
            raise Refusal(
                Status.NO_SPACE,
                f"{free >> 20} MiB free in {tempfile.gettempdir()}, wanted {NEEDED_BYTES >> 20} MiB: "
                "free some, or set TMPDIR to a folder that has them",
            )
        self._chip = self._compiles_for = chip
        self._keep = keep
        self.one_file = one_file
        self.executed: dict[tuple[str, ...], Executed] = {}
        """Programs that the values child executed, and that passed: see ``correctness.Examiner``."""
        sweep(Path(tempfile.gettempdir()))
        self._count = itertools.count()
        self._closed = False
        self._authors = warm.begun(warm.AUTHOR, seal) or (Warm(warm.AUTHOR) if keep else None)
        self._early = None if keep or one_file else speculative.begun(self._authors)
        self._place = self._early.place if self._early else Place()
        self.root = self._place.root
        self.asking = threading.Lock()
        """Held by whoever asks the values child."""
        self._next: Child | None = self._fresh() if self._early is None else None
        self._warm = warm.begun(warm.JUDGE, seal) or Warm(warm.JUDGE)
        self._compiler = self._start_compiler() if compiles else None
        self._values = None if one_file else self._start_values()
        self._machine = self._start_machine() if compiles else None
        self._others: dict[str, tuple[Chip, Child]] = {}
        """More compilers, by what they are for."""

    def folder(self, name: str) -> Path:
        """A new folder for one piece of work.

        Raises:
          Refusal: ``INTERRUPTED`` once these workers are closed: whoever still judges with them gets no new child.
        """
        if self._closed:
            raise Refusal(Status.INTERRUPTED, Status.INTERRUPTED.meaning)
        return self.root / f"{next(self._count):04d}-{name}"

    def _fresh(self) -> Child:
        return tracer.start(self.folder("candidate"), warm=self._authors)

    def _start_compiler(self) -> Child:
        return compiling.start(self.folder("compiler"), self._compiles_for, self._warm, lists=False)

    def _start_values(self) -> Child:
        return asking.start(self.folder("values"), self._warm)

    def _start_machine(self) -> Child:
        return schedule.start(self.folder("machine"), self._warm)

    def candidate(self) -> Child:
        """A child that has run no kernel file yet, or only others of the sweep's; it is the caller's to close."""
        if self.one_file:
            if self._next is None or not self._next.alive:
                if self._next is not None:
                    self._next.close()
                self._next = self._fresh()
            return self._next
        child, self._next = self._next or self._fresh(), None
        return child

    def asked(self, wanted: TraceRequest) -> Trace:
        """A candidate child that traces this, or will once its answer is waited for; it is the caller's to close."""
        begun, self._early = self._early, None
        if begun is not None and begun.asked.request == wanted:
            return begun.asked
        if begun is not None:
            begun.asked.child.close()
        return tracer.trace(wanted, self.candidate())

    def prepare_next(self) -> None:
        """Start the next candidate child, if this set is kept."""
        if self._keep and self._next is None:
            self._next = self._fresh()

    @property
    def compiler(self) -> Child:
        """The one for the chip that these workers were made for."""
        return self.compiler_for(self._chip)

    def compiler_for(self, chip: Chip) -> Child:
        """One that compiles for ``chip``. One is kept: asking for another chip ends it."""
        if self._compiler is None or not self._compiler.alive or chip != self._compiles_for:
            if self._compiler is not None:
                self._compiler.close()
            self._compiles_for = chip
            self._compiler = self._start_compiler()
        return self._compiler

    def lister_for(self, chip: Chip) -> Child:
        """Another compiler, which also lists the buffers of a kernel that does not fit. One is kept."""
        return self._other("lister", chip)

    def profiler_for(self, chip: Chip) -> Child:
        """Another compiler, which takes the bundles of kernels from a profile: for large ones. One is kept."""
        return self._other("profiler", chip)

    def _other(self, what: str, chip: Chip) -> Child:
        kept_for, child = self._others.get(what, (None, None))
        if child is not None and (not child.alive or chip != kept_for):
            child.close()
            child = None
        if child is None:
            child = compiling.start(self.folder(what), chip, self._warm, profiles=what == "profiler")
            self._others[what] = chip, child
        return child

    @property
    def values(self) -> Child:
        if self._values is None or not self._values.alive:
            if self._values is not None:
                self._values.close()
            self._values = self._start_values()
        return self._values

    def cancel_values(self) -> None:
        """End what the values child is doing, from another thread than the one that waits for it."""
        if self._values is not None:
            self._values.cancel()

    @property
    def machine(self) -> Child:
        if self._machine is None or not self._machine.alive:
            if self._machine is not None:
                self._machine.close()
            self._machine = self._start_machine()
        return self._machine

    def close(self) -> None:
        """Kill all children and remove their folders. Nothing that a child left makes it raise. Safe to call twice."""
        self._closed = True
        processes = [one for one in (self._authors, self._warm) if one is not None]
        for process in processes:
            process.cancel()
        others = [child for _, child in self._others.values()]
        begun = self._early.asked.child if self._early else None
        every = (begun, self._next, self._compiler, *others, self._values, self._machine)
        children = [child for child in every if child is not None]
        for child in children:  # each frees much memory, all at a time
            with contextlib.suppress(OSError):
                child.let_go()
        for child in children:
            with contextlib.suppress(OSError):
                child.close()
        for process in processes:
            process.close()
        self._place.close()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
