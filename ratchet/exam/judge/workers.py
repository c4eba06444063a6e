"""The judge's child processes, kept between verdicts so that a sweep does not pay for set-up again."""

from __future__ import annotations

import contextlib
import itertools
import queue
import shutil
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from ratchet.exam.candidate import tracer
from ratchet.exam.candidate.tracer import TraceRequest, Tracing
from ratchet.exam.judge import asking, freezing, schedule
from ratchet.exam.judge.correctness import Executed
from ratchet.process.sandbox import warm
from ratchet.process.sandbox.child import Child
from ratchet.process.sandbox.folder import ScratchFolder, sweep
from ratchet.process.sandbox.warm import Warm
from ratchet.tpu.chips import Chip
from ratchet.tpu.compiler import compile as compiling
from ratchet.values.status import Refusal, Status

Result = TypeVar("Result")

NEEDED_BYTES = 256 << 20
"""Free space wanted for programs, dumps and what a kernel file may write."""


_DIALECTS = tuple(f"jaxlib.mlir.dialects.{name}" for name in ("arith", "builtin", "math", "mhlo", "scf", "vector"))
JUDGE = warm.Kind(
    name="judge",
    modules=(asking.WORKER, compiling.WORKER, freezing.WORKER, schedule.WORKER),
    also=_DIALECTS,
    allocator=True,
)
"""The judge's own children."""
AUTHOR = warm.Kind(name="author", modules=(tracer.WORKER,), also=_DIALECTS)
"""Those that run an author's code. They are forked of another process, and keep the system's allocator."""


class Workers:
    """One compiler, one values child, one schedule machine, and a fresh candidate child for every kernel file.

    All start at once, the compiler for ``chip``. The judge's own are forks of one process that imports JAX; the
    candidate's, which runs an author's code, is one of another, or imports JAX itself. A child that died or was killed
    is replaced. With ``keep``, the next candidate child starts while the current kernel is still being judged; without
    ``compiles``, the TPU compiler starts only when it is asked for. With ``one_file``, all kernel files are versions of
    one, which a sweep traces in the same child, and the values child starts once it is asked for. With a ``seal``,
    processes that wait for work and were made under it are forked, and those that are made here wait for the next run.
    """

    def __init__(
        self,
        chip: Chip,
        *,
        keep: bool = False,
        compiles: bool = True,
        one_file: bool = False,
        seal: str = "",
        waiting: tuple[Warm, Warm] | None = None,
    ) -> None:
        free = shutil.disk_usage(tempfile.gettempdir()).free
        if free < NEEDED_BYTES:  # a child that cannot write would look like a kernel that fails
            raise Refusal(
                Status.NO_SPACE,
                f"{free >> 20} MiB free in {tempfile.gettempdir()}, wanted {NEEDED_BYTES >> 20} MiB: "
                "free some, or set TMPDIR to a folder that has them",
            )
        self._chip, self._keep = chip, keep
        self.one_file = one_file
        self.executed: dict[tuple[str, ...], Executed] = {}
        """Programs that the values child executed, and that passed: see ``correctness.Examiner``."""
        sweep(Path(tempfile.gettempdir()))
        self._count = itertools.count()
        self._closed = False
        self._scratch = ScratchFolder()
        self.root = self._scratch.root
        self.asking = threading.Lock()
        """Held by whoever asks the values child."""
        self._children: dict[str, tuple[Chip | None, Child]] = {}
        """The judge's own by their role, and the chip that they are for."""
        self.seal = seal
        self._begun: Tracing | None = None
        if waiting is None:
            self._authors = warm.process(AUTHOR, seal) if keep or seal else None
        else:
            self._authors = waiting[0]
        self._next: Child | None = self.author()
        self._warm = warm.process(JUDGE, seal) if waiting is None else waiting[1]
        if compiles:
            self.compiler_for(chip)
        if not one_file:
            _ = self.values
        if compiles:
            _ = self.machine

    @classmethod
    def waiting(cls, chip: Chip) -> Workers | None:
        """Of processes that wait for work, whatever ``seal`` they were made under; None where there are none."""
        seal, found = warm.waiting((AUTHOR, JUDGE))
        return cls(chip, seal=seal, waiting=(found[0], found[1])) if found else None

    def folder(self, name: str) -> Path:
        """A new folder for one piece of work.

        Raises:
          Refusal: ``INTERRUPTED`` once these workers are closed: whoever still judges with them gets no new child.
        """
        if self._closed:
            raise Refusal(Status.INTERRUPTED, Status.INTERRUPTED.meaning)
        return self.root / f"{next(self._count):04d}-{name}"

    def author(self) -> Child:
        """A candidate child that has run nothing; it is the caller's to close."""
        return tracer.start(self.folder("candidate"), warm=self._authors)

    def _child(self, role: str, start: Callable[[Path], Child], chip: Chip | None = None) -> Child:
        """The child of this role. A new one is started where it is dead, or for another chip."""
        known_for, child = self._children.get(role, (None, None))
        if child is None or not child.alive or known_for != chip:
            if child is not None:
                child.close()
            child = start(self.folder(role))
            self._children[role] = chip, child
        return child

    def candidate(self) -> Child:
        """A child that has run no kernel file yet, or only others of the sweep's; it is the caller's to close."""
        if self.one_file:
            if self._next is None or not self._next.alive:
                if self._next is not None:
                    self._next.close()
                self._next = self.author()
            return self._next
        child, self._next = self._next or self.author(), None
        return child

    def begin(self, request: TraceRequest) -> None:
        """Trace a kernel file that ``tracing`` will be asked for."""
        self._begun = tracer.tracing_already(request, self.candidate())

    def tracing(self, request: TraceRequest) -> Tracing:
        """A candidate child for this request, or the one that traces the same already; the child is the caller's."""
        begun, self._begun = self._begun, None
        if begun and begun.request == request:
            return begun
        if begun:
            begun.child.close()
        return tracer.tracing(request, self.candidate())

    def prepare_next(self) -> None:
        """Start the next candidate child, if this set is kept."""
        if self._keep and self._next is None:
            self._next = self.author()

    @property
    def compiler(self) -> Child:
        """The one for the chip that these workers were made for."""
        return self.compiler_for(self._chip)

    def compiler_for(self, chip: Chip) -> Child:
        """One that compiles for ``chip``. One is kept: asking for another chip ends it."""
        return self._child("compiler", lambda folder: compiling.start(folder, chip, self._warm), chip)

    def profiler_for(self, chip: Chip) -> Child:
        """Another compiler, which takes the bundles of kernels from a profile: for large ones. One is kept."""
        return self._child("profiler", lambda folder: compiling.start(folder, chip, self._warm, profiles=True), chip)

    @property
    def values(self) -> Child:
        return self._child("values", lambda folder: asking.start(folder, self._warm))

    def freezer(self) -> Child:
        """A child that freezes one problem; it is the caller's to close."""
        return freezing.start(self.folder("problem"), self._warm)

    def cancel_values(self) -> None:
        """End what the values child is doing, from another thread than the one that waits for it."""
        if "values" in self._children:
            self._children["values"][1].cancel()

    @property
    def machine(self) -> Child:
        return self._child("machine", lambda folder: schedule.start(folder, self._warm))

    def close(self) -> None:
        """Kill all children and remove their folders. Nothing that a child left makes it raise. Safe to call twice."""
        self._closed = True
        processes = [one for one in (self._authors, self._warm) if one is not None]
        for process in processes:
            process.cancel()
        begun = [self._begun.child] if self._begun else []
        children = [
            *begun,
            *([self._next] if self._next else []),
            *(child for _, child in list(self._children.values())),
        ]
        for child in children:  # each frees much memory, all at a time
            with contextlib.suppress(OSError):
                child.let_go()
        for child in children:
            with contextlib.suppress(OSError):
                child.close()
        for process in processes:
            process.close()
        self._scratch.close()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WorkerSlots:
    """Several kernels judged at once: each slot is one set of workers, kept from one kernel to the next.

    Results come as the work of a slot is done: ``as_completed``, or ``wait`` for the first of them, to choose by it
    what is submitted next. Leaving the context closes the slots.
    """

    def __init__(self, count: int, make: Callable[[], Workers]) -> None:
        """Start ``count`` slots, at least one, each with the workers that a call of ``make`` returns.

        Raises:
          Refusal: what ``make`` raises. Those that were made by then are closed.
        """
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="slot")
        self._idle: queue.SimpleQueue[Workers] = queue.SimpleQueue()
        self._kept: list[Workers] = []
        try:
            for _ in range(count):
                self._kept.append(make())
                self._idle.put(self._kept[-1])
        except BaseException:
            self.close()
            raise

    def submit(self, work: Callable[[Workers], Result]) -> Future[Result]:
        """Call ``work`` with the workers of the next slot that is idle, in the order of submission.

        Raises:
          RuntimeError: the slots were stopped.
        """
        return self._pool.submit(self._in_a_slot, work)

    def _in_a_slot(self, work: Callable[[Workers], Result]) -> Result:
        workers = self._idle.get()
        try:
            return work(workers)
        finally:
            self._idle.put(workers)

    def stop(self) -> None:
        """Begin nothing more: what waits is cancelled, what is under way goes on. Any thread may ask, again too."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """``stop``, and end what is under way: its result is of no use. Safe to call twice."""
        self.stop()
        for workers in self._kept:
            workers.close()
        self._pool.shutdown()
        for workers in self._kept:  # again: a child may have been about to start
            workers.close()

    def __enter__(self) -> WorkerSlots:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
