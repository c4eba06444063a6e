"""The cores of a chip while they execute one call of a kernel: in which order they run, and what comes of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ratchet.tpu.mlir.signature import Kernel
from ratchet.tpu.mosaic.cores.copies import Wrong
from ratchet.tpu.mosaic.cores.core import Blocked, Core
from ratchet.tpu.mosaic.cores.plan import core_dimensions
from ratchet.tpu.mosaic.cores.runs import Runs
from ratchet.tpu.mosaic.cores.shared import Shared
from ratchet.tpu.mosaic.cores.windows import Windows
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.state import Options


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one execution of a call gives; ``flags``, ``counts`` and ``digests`` as ``report.Layout`` has them."""

    results: tuple[np.ndarray, ...]
    """As memory keeps them; zeros where something was found."""
    flags: np.ndarray
    counts: np.ndarray
    """Of all cores together, by operation."""
    digests: np.ndarray


class Chip:
    """One execution of a call."""

    def __init__(  # noqa: PLR0913 - what is executed, and by keyword how
        self, kernel: Kernel, inputs: Sequence[np.ndarray], outputs: Sequence[tuple[tuple[int, ...], np.dtype]],
        runs: Runs, *, seed: int, fill: int, padding: int, options: Options,
    ) -> None:  # fmt: skip
        """
        Args:
            inputs: operands of the call, as memory keeps them.
            outputs: shape and dtype of each result.
            seed: 0 lets the first core run as far as it can before the next one; with another number the last core is
                first, and parallel loops run backwards.
            fill, padding: as ``Translation.run`` has them.
        """
        self._kernel, self._seed = kernel, seed
        self._dimensions = core_dimensions(kernel)
        dynamic = iter(inputs[: kernel.dynamic_bounds])
        bounds = tuple(int(next(dynamic).reshape(())) if one is None else one for one in kernel.bounds)
        cores, subcores = (range(1 if d is None else bounds[d]) for d in self._dimensions)
        places = list(itertools.product(cores, subcores))
        single = self._dimensions[1] is None
        names = [f"core {core}" if single else f"subcore {subcore} of core {core}" for core, subcore in places]
        self.shared = shared = Shared(
            kernel, places, runs, bounds=bounds, names=names, seed=seed, fill=fill, padding=padding, options=options
        )
        self.cores: list[Core] = []
        self.cores += [Core(shared, self.cores, number, place) for number, place in enumerate(places)]
        self.windows = Windows(shared, self.cores, inputs[kernel.dynamic_bounds :], outputs)

    def run(self) -> Outcome:
        """Execute it to its end, or to the first finding."""
        try:
            self._run_cores()
            for core in self.cores:
                self._now = core
                for value in self._kernel.scratch:
                    if "semaphore" in value.type.dtype:
                        core.check_at_rest(value)
                core.check_barrier_semaphore()
            self.shared.copies.settle_all()
            results = self.windows.results()
        except Wrong as wrong:
            self.shared.report(wrong, self._now.step)
            results = self.windows.nothing()
        self.cores.clear()  # which they all know: their memory goes now, not when a cycle is found
        shared = self.shared
        return Outcome(results=tuple(results), flags=shared.flags, counts=shared.counts.sum(0), digests=shared.digests)

    def _run_cores(self) -> None:
        """Each core in turn as far as it can go, until all are done."""
        running: dict[Core, Iterator[Blocked]] = {core: self._steps(core) for core in self.cores}
        waiting: dict[Core, Blocked] = {}
        order = self.cores if self._seed == 0 else self.cores[::-1]
        while running:
            able = [one for one in order if one in running and (one not in waiting or waiting[one].ready())]
            if not able:
                raise self._deadlock(waiting)
            for self._now in able:
                waiting.pop(self._now, None)
                try:
                    waiting[self._now] = next(running[self._now])
                except StopIteration:
                    del running[self._now]

    def _deadlock(self, waiting: dict[Core, Blocked]) -> Wrong:
        self._now = first = min(waiting, key=lambda core: core.number)
        places = sorted({f"{one.op.name} at {one.op.location}" for one in waiting.values()})
        what = f"{len(waiting)} of {len(self.cores)} cores wait for what nobody sends, {first.name} first"
        return Wrong(Kind.WAIT_WITHOUT_START, waiting[first].op, f"{what}: {'; '.join(places)}")

    def _steps(self, core: Core) -> Iterator[Blocked]:
        """All steps of the grid that are one core's, in order."""
        bounds, body = self.shared.bounds, self._kernel.main.body
        own = dict(zip(self._dimensions, core.place, strict=True))
        for at in itertools.product(*((own[d],) if d in own else range(bound) for d, bound in enumerate(bounds))):
            core.step = int(np.ravel_multi_index(at, bounds)) if at else 0
            self.windows.fetch(core, at)
            arguments = [core.values[value] for value in body.arguments[len(bounds) :]]
            yield from core.block(body, [*map(np.int32, at), *arguments])
            self.windows.write_back(core)
