"""A program with code for the CPU in the place of its kernels, translated in one way, compiled once and executed."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import lax

from ratchet.process.concurrency import BackgroundJobs, once
from ratchet.tpu.mlir.calls import Call
from ratchet.tpu.mlir.signature import TENSOR_CORE, Kernel
from ratchet.tpu.mosaic import chip_races, events
from ratchet.tpu.mosaic.arrays import Array
from ratchet.tpu.mosaic.copies import Traced, executed, words_of_blocks, words_of_copies
from ratchet.tpu.mosaic.cores.program import Beside
from ratchet.tpu.mosaic.devices import Placed, arguments, compiled, device_lock, held, place
from ratchet.tpu.mosaic.findings import KINDS, Finding, RunResult
from ratchet.tpu.mosaic.grid import run_kernel
from ratchet.tpu.mosaic.lowering import lowered
from ratchet.tpu.mosaic.program import Program
from ratchet.tpu.mosaic.report import Layout, control_flow, counters_of
from ratchet.tpu.mosaic.rules import is_remote
from ratchet.tpu.mosaic.state import Options
from ratchet.values.copies import ExecutedCopies
from ratchet.values.status import Refusal, Status

_MOST_COPIED = 1 << 23
"""Elements that DMAs may write where the translation with late DMAs answers: each wait passes over all of them."""


class Translation:
    """Made where it is needed; whatever cannot be translated is refused then.

    Raises:
        Refusal: as ``run.load``.
    """

    def __init__(self, program: Program, options: Options) -> None:
        self._program, self._options = program, options
        self.beside = Beside(program, options)
        """Its kernels on several cores."""
        self._layout = replace(layout_of(program, options), operands=self.beside.operands)
        self._width = self._layout.width
        self._sites: list[list[Finding]] = []
        """Of each kernel what it may report."""
        self._traced: list[Traced] = []
        """Of each kernel what is known of its copies."""
        with readable():
            self._lowered = lowered(
                program.exported, self._translate, self._width, self._layout.merged, config=self.beside.words
            )

    def _translate(self, number: int, call: Call) -> Any:
        self._traced.append(Traced(shapes={}, sizes={}))
        if number in self.beside:
            self._sites.append(self.beside.sites(number))
            return self.beside.translate(number, call, self._layout)
        self._sites.append([])
        kernel = self._program.kernels[number]
        return function_of(kernel, call, self._options, self._layout, self._sites[-1], self._traced[-1])

    @once
    def compiled(self) -> Any:
        return compiled(self._program, self._lowered)

    def run(self, inputs: Placed, *, seed: int = 0, fill: int = 0, padding: int | None = None) -> RunResult:
        """Execute the program once.

        Args:
            inputs: as :func:`place` gives them.
            seed: Order of the steps of parallel grid dimensions: 0 is lexicographic, others are scattered.
            fill: What unwritten memory holds: 0 is NaN (an odd number for integers), others are other numbers.
            padding: The same for what is past the ragged edges of inputs; ``fill`` unless it is given.
        """
        start = time.perf_counter()
        program, config = self._program, (seed, fill, fill if padding is None else padding)
        with device_lock(program):
            outputs, reports = self._executed(inputs, config)
        holders = [held(output, spec) for output, spec in zip(outputs, program.outputs, strict=True)]
        count = max(map(len, holders), default=1)
        first, *others = [tuple(copies[min(n, len(copies) - 1)] for copies in holders) for n in range(count)]
        by_kernel = reports[: len(program.kernels)]
        counts, digests, blocks, *_ = self._layout.parts
        of_tensor_cores = (pair for pair in zip(program.kernels, by_kernel, strict=True) if pair[0].core == TENSOR_CORE)
        counted = ((kernel.module, row[counts:digests]) for kernel, row in of_tensor_cores)
        return RunResult(
            outputs=first,
            findings=self._findings(by_kernel) or self._races(by_kernel),
            seconds=time.perf_counter() - start,
            replicas=tuple(others),
            control=replace(control_flow(counted), executed=self._copies(by_kernel)),
            digests=tuple(row[digests:blocks] for row in by_kernel) if self._options.digests else (),
        )

    def _executed(self, inputs: Placed, config: tuple[int, int, int]) -> tuple[list[Any], np.ndarray]:
        """The outputs, and a report for each call."""
        run, beside = self.compiled, self.beside
        *_, end = self._layout.parts
        seed, fill, padding = config
        beside.forget()
        while True:
            *outputs, report = jax.block_until_ready(run(*arguments(self._program, inputs, beside.config(config))))
            reports = np.asarray(report).reshape(-1, self._width)
            if not beside.execute(reports[:, end:], seed=seed, fill=fill, padding=padding):
                break
        if beside:
            reports = np.array(reports)
            beside.write(reports, self._layout)
        return outputs, reports

    def _findings(self, report: np.ndarray) -> tuple[Finding, ...]:
        return tuple(
            replace(
                sites[site], grid_step=kernel.coordinates(step), message=f"kernel {kernel.name}: {sites[site].message}"
            )
            for kernel, sites, flags in zip(self._program.kernels, self._sites, report, strict=True)
            for step, site in flags[: 2 * len(KINDS)].reshape(-1, 2).tolist()
            if site >= 0
        )

    def _copies(self, report: np.ndarray) -> tuple[ExecutedCopies, ...]:
        layout = self._layout
        *_, first, _, logs, _ = layout.parts
        return tuple(
            executed(kernel, call.site, traced, row[first:logs], layout.blocks, layout.copies)
            for kernel, call, traced, row in zip(
                self._program.kernels, self._program.calls, self._traced, report, strict=True
            )
        )

    def _races(self, report: np.ndarray) -> tuple[Finding, ...]:
        """Races where one chip is faster than another, in kernels in which nothing else is found."""
        *_, logs, end = self._layout.parts
        if not self._layout.chips:
            return ()
        return tuple(
            finding
            for kernel, row in zip(self._program.kernels, report, strict=True)
            for finding in chip_races.findings(kernel, events.read(row[logs:end], self._layout.chips))
        )


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """A damaged module can break any rule that sound ones keep: what that raises is a refusal."""
    try:
        yield
    except Refusal:
        raise
    except Exception as error:
        what = f"the artefact cannot be read: {type(error).__name__}: {error}"
        raise Refusal(Status.CANNOT_VERIFY, what) from None


def layout_of(program: Program, options: Options) -> Layout:
    """What the kernels of a program report; all of them the same, for one vector."""
    logged = program.kernels if program.devices == 1 and not (options.digests or options.windows_ahead) else ()
    return Layout(
        blocks=max(map(words_of_blocks, logged), default=0),
        copies=max((words_of_copies(kernel.module) for kernel in logged), default=0),
        counts=max(map(counters_of, program.modules.values()), default=0),
        digests=options.digests,
        chips=program.devices if options.on_wait and program.sends else 0,
    )


def function_of(
    kernel: Kernel, call: Call, options: Options, layout: Layout, sites: list[Finding], traced: Traced
) -> Callable[..., tuple[list[Array], Array]]:
    """A call as a JAX function ``(config, *operands) -> (results, report)``; ``sites`` gets what it may report,
    ``traced`` what is known of its copies."""
    names = {op.name for op in kernel.module.operations()}
    is_sending = any(map(is_remote, kernel.module.operations()))
    if call.skips_barrier and "tpu.sem_barrier" not in names and is_sending:
        raise Refusal(
            Status.MEMORY_HAZARD,
            f"kernel {call.name} writes into other chips without a barrier before: it skips the compiler's barrier "
            "(skip_device_barrier) and has none of its own (pltpu.get_barrier_semaphore)",
        )
    communicates = call.has_communication or is_sending or names & {"tpu.device_id", "tpu.sem_barrier"}
    axes = tuple(name for name, _ in call.mesh) if communicates else ()

    def run(config: Any, *operands: Any) -> tuple[list[Array], Array]:
        device = lax.axis_index(axes) if axes else None
        outputs, report = run_kernel(
            kernel,
            operands,
            [(tuple(aval.shape), np.dtype(aval.dtype)) for aval in call.outputs],
            config=config,
            options=options,
            sites=sites,
            traced=traced,
            layout=layout,
            device=device,
            devices=math.prod(size for _, size in call.mesh),
            axes=axes,
            logs=bool(layout.chips and axes),
            behind_barrier=not call.skips_barrier,
        )
        return outputs, layout.completed(report, device)

    return run


class Translations:
    """A program's translations: each is made once, where it is needed."""

    def __init__(self, exported: Any, options: Options) -> None:
        self.program = Program(exported)
        self._options = options
        self.apart = False
        """Whether chips fall behind each other: some wait for what is sent after all have come to that wait."""
        self._made: dict[Options, Translation] = {}
        self._background: BackgroundJobs[Translation] = BackgroundJobs()
        assert self.with_options(**self.first)  # what cannot be translated is refused here

    @once
    def first(self) -> dict[str, bool]:
        """With which options the program answers where only values count: late DMAs, or none.

        Late DMAs give the same if the kernel waits for what it reads, and ``check`` needs them to know that. They are
        slower where much memory is written by DMAs. Chips that send to each other have to be right in both.
        """
        on_wait, copied = {"on_wait": True}, self.program.elements_copied_into
        if self._options.fast and 0 < copied <= _MOST_COPIED and self.program.devices == 1:
            with contextlib.suppress(Exception):  # what fails is tried again by ``check``, and said there
                assert self.with_options(**on_wait)
                return on_wait
        return {}

    def with_options(self, **options: Any) -> Translation:
        """The program translated with other options."""
        wanted = replace(self._options, apart=self.apart, **options)
        if wanted not in self._made:
            self._made[wanted] = self._background.take(wanted) or Translation(self.program, wanted)
        return self._made[wanted]

    def place(self, inputs: Sequence[np.ndarray]) -> Placed:
        """See ``devices.place``."""
        return place(self.program, inputs)

    def begin(self, *variants: dict[str, Any]) -> None:
        """Translate and compile beside what is executed next; ``with_options`` waits for its own."""
        wanted = (replace(self._options, apart=self.apart, **variant) for variant in variants)
        if self._options.fast:
            self._background.begin({options: functools.partial(self._compiled, options) for options in wanted})

    def _compiled(self, options: Options) -> Translation:
        made = self._made.get(options) or Translation(self.program, options)
        assert made.compiled
        return made
