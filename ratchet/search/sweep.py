"""Many versions of one kernel file, modelled side by side: which values of its knobs are worth an experiment.

Nothing is recorded, and no value is checked unless asked for. Each lane keeps its children, so that a point costs no
more than tracing, compiling and its schedule.
"""

from __future__ import annotations

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
from ratchet.values import Conditions, Point, SweepResult
from ratchet.wiring import JudgeFunction

LANES = 2
"""Points under way at once. A compile needs up to several GiB."""


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
        versions = [(point, with_constants(source, self.kernel.name, point)) for point in points]
        count = max(1, min(self.lanes, len(versions)))
        with (
            tempfile.TemporaryDirectory(prefix="ratchet-") as folder,
            WorkerSlots(count, partial(Workers, self.chip, one_file=True)) as lanes,
        ):
            running = [
                lanes.submit(partial(self._point, Path(folder, f"{number:05d}"), point, text))
                for number, (point, text) in enumerate(versions)
            ]
            for future in as_completed(running):
                yield future.result()

    def _point(self, folder: Path, point: Point, text: bytes, workers: Workers) -> SweepResult:
        start = time.monotonic()
        paths.make_folder(folder)
        kernel = folder / self.kernel.name
        paths.write(kernel, text)
        request = Request(
            kernel=kernel,
            root=self.root,
            kernel_rel=self.kernel_rel,
            conditions=self.conditions,
            chip=self.chip,
            model_only=not self.values,
            remember=self.remember,
        )
        verdict = self.judge(request, workers=workers)
        return SweepResult(point=point, verdict=verdict, seconds=time.monotonic() - start)
