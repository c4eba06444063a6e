"""Programs whose problem is their own, right ones and wrong ones, judged one after the other."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from benchmarks.lib.command import say
from benchmarks.lib.memory import Peak
from prepare import judge
from ratchet.exam.judge.request import Request
from ratchet.exam.judge.workers import Workers
from ratchet.tpu.chips import CHIPS
from ratchet.values import Conditions, Verdict
from ratchet.values.status import Status


class Program(Protocol):
    """A kernel file that can be made."""

    @property
    def name(self) -> str: ...

    @property
    def wrong(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """What can be made wrong in it, and the edits that do."""

    @property
    def source(self) -> Callable[..., str]:
        """Makes its text, right or, with one of the keys of ``wrong`` as the last argument, in that way."""


def verdict(source: str, chip: str, workers: Workers) -> Verdict:
    """What the judge says of a kernel file whose problem is its own."""
    conditions = Conditions(evaluator=f"{chip}-model", chip=chip, compiler="", seal="", problem="")
    with tempfile.TemporaryDirectory(prefix="ratchet-") as name:
        root = Path(name)
        kernel = root / "kernel.py"
        kernel.write_text(source)
        request = Request(kernel=kernel, root=root, kernel_rel=kernel.name, conditions=conditions, chip=CHIPS[chip])
        return judge(request, workers=workers)


def rows(chip: str, programs: Iterable[Program], /, *given: int, wrong: bool, **where: str) -> Iterator[dict[str, Any]]:
    """A row for each program on ``chip``, or for each wrong one.

    Args:
        given: what a program's ``source`` takes first.
        where: a column, and what stands in it: the name of where they are judged.
    """
    with Workers(CHIPS[chip], keep=True) as workers:
        for program in programs:
            source = partial(program.source, *given)
            for what in program.wrong if wrong else ("",):
                begun = time.monotonic()
                with Peak.measured() as peak:
                    said = verdict(source(what), chip, workers)
                yield {
                    "program": program.name,
                    **({"wrong": what} if wrong else {}),
                    **where,
                    "status": said.status.name,
                    "ms": said.score.latency_ms if said.score else None,
                    "seconds": round(time.monotonic() - begun, 1),
                    "GiB": round(peak.bytes / (1 << 30), 2),
                    "why": "" if said.status is Status.PASS else said.reason[:200],
                }
                say(f"{' '.join(where.values())}: {program.name} {what}: {said.status.name}")


def in_all(listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row that sums up those of :func:`rows`."""
    passed = sum(one["status"] == Status.PASS.name for one in listed)
    most = {f"most {what}": max((one[what] for one in listed), default=0) for what in ("seconds", "GiB")}
    return [{"judged": len(listed), "passed": passed, **most}]


def named(programs: Iterable[Program], texts: list[str]) -> list[Any]:
    """Those whose name has one of the texts."""
    return [one for one in programs if any(text in one.name for text in texts)]
