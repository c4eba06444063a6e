"""Many versions of one kernel file, modelled side by side: values of its knobs, or edits of its text.

Nothing is recorded, and no value is checked unless asked for. Each lane keeps its children, so that a version costs no
more than tracing, compiling and its schedule.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ratchet.exam.judge.request import Request
from ratchet.exam.judge.workers import Workers, WorkerSlots
from ratchet.kernelfile.knobs import with_constants
from ratchet.process import paths
from ratchet.tpu.chips import Chip
from ratchet.values import Conditions, Point, SweepResult, Verdict
from ratchet.wiring import JudgeFunction

LANES = 2
"""Versions under way at once. A compile needs up to several GiB."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What is swept: a kernel file with a frozen problem."""

    kernel: Path
    """The file that is there. It is read once and stays as it is."""
    root: Path
    kernel_rel: str
    conditions: Conditions
    chip: Chip
    judge: JudgeFunction
    """``prepare.judge``."""
    values: bool = False
    """Check the values of every point, too."""
    lanes: int = LANES
    remember: bool = False
    """Use what is known of programs that were modelled before."""

    def run(self, points: Sequence[Point]) -> Iterator[SweepResult]:
        """Every point's result, as it comes.

        Raises:
          Refusal: ``USAGE`` for a name that is no knob of the file, before anything runs.
        """
        source = paths.read(self.kernel)
        versions = [with_constants(source, self.kernel.name, point) for point in points]
        with self.opened(len(versions)) as lanes:
            for number, verdict, seconds in lanes.verdicts(versions, values=self.values):
                yield SweepResult(point=points[number], verdict=verdict, seconds=seconds)

    @contextlib.contextmanager
    def opened(self, most: int) -> Iterator[Lanes]:
        """Lanes for at most so many versions at once."""
        count = max(1, min(self.lanes, most))
        with (
            tempfile.TemporaryDirectory(prefix="ratchet-") as folder,
            WorkerSlots(count, partial(Workers, self.chip, one_file=True)) as slots,
        ):
            yield Lanes(sweep=self, slots=slots, folder=Path(folder))


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """Children that model versions of the swept file, kept from one call to the next."""

    sweep: Sweep
    slots: WorkerSlots
    folder: Path

    def verdicts(
        self, versions: Sequence[bytes], *, values: bool = False, until: float = math.inf
    ) -> Iterator[tuple[int, Verdict, float]]:
        """The number of each version, its verdict, and how many seconds that took; as they come.

        Args:
          versions: the file's bytes with another thing changed in each.
          values: check them, too.
          until: by ``time.monotonic()``; what has not begun by then is left out.
        """
        running = [
            self.slots.submit(partial(self._one, number, text, values, until)) for number, text in enumerate(versions)
        ]
        for future in as_completed(running):
            if (done := future.result()) is not None:
                yield done

    def _one(
        self, number: int, text: bytes, values: bool, until: float, workers: Workers
    ) -> tuple[int, Verdict, float] | None:
        start = time.monotonic()
        if start >= until:
            return None
        sweep = self.sweep
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            kernel = Path(folder, sweep.kernel.name)
            paths.write(kernel, text)
            request = Request(
                kernel=kernel,
                root=sweep.root,
                kernel_rel=sweep.kernel_rel,
                conditions=sweep.conditions,
                chip=sweep.chip,
                model_only=not values,
                remember=sweep.remember,
            )
            verdict = sweep.judge(request, workers=workers)
        return number, verdict, time.monotonic() - start
