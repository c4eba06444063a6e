"""A kernel file that is traced while the judge still imports what it takes to judge one.

A verdict waits for that trace first, and then for nothing that is imported here. Nothing is decided: the trace counts
where the verdict wants the same of the same bytes, from a child of the same process.
"""

from __future__ import annotations

import atexit
import contextlib
from dataclasses import dataclass
from pathlib import Path

from ratchet.exam.candidate import contract, tracer
from ratchet.exam.measure import devices
from ratchet.exam.problem import problem
from ratchet.process.boot import home
from ratchet.process.sandbox import warm
from ratchet.process.sandbox.scratch import Place
from ratchet.process.sandbox.warm import Warm
from ratchet.values.status import Refusal


@dataclass(frozen=True, kw_only=True)
class Early:
    """A child that traces a kernel file already, what it was forked of, and the folder that holds its own."""

    asked: tracer.Trace
    authors: Warm
    place: Place

    def close(self) -> None:
        """End it. Safe to call twice."""
        with contextlib.suppress(OSError):
            self.asked.child.close()
        self.place.close()


_BEGUN: list[Early] = []


def begin(given: Path | None, evaluator: str | None, *, new_problem: bool) -> None:
    """Trace the file that a command line names, if it is to be judged by a model.

    What fails is tried again, and said, where it is needed.

    Args:
        given: the kernel file, as ``home.kernel`` takes it.
        evaluator: None for the preferred one.
        new_problem: freeze this file's own problem, where there is one already, too.
    """
    authors = warm.waiting(warm.AUTHOR)
    with contextlib.suppress(OSError, Refusal):
        kernel, chip = _kernel(given), devices.modelled(evaluator or devices.preferred())
        if authors is None or kernel is None or chip is None:
            return
        wanted = tracer.TraceRequest(
            source=kernel.read_bytes(),
            name=kernel.name,
            freeze=new_problem or not problem.lock_path(kernel).exists(),
            chip=chip,
        )
        atexit.register(forget)
        place = Place()
        child = tracer.start(place.root / "candidate", warm=authors)
        _BEGUN.append(Early(asked=tracer.trace_at_once(wanted, child), authors=authors, place=place))


def begun(authors: Warm | None) -> Early | None:
    """What was begun, once, if its child was forked of that process; who asks for it closes it."""
    early = _BEGUN.pop() if _BEGUN else None
    if early is not None and early.authors is not authors:
        early.close()
        return None
    return early


def forget() -> None:
    """End what nobody asked for."""
    while _BEGUN:
        _BEGUN.pop().close()


def _kernel(given: Path | None) -> Path | None:
    """As the command line finds it; None for what cannot be one."""
    here = Path.cwd()
    found = home.kernel(home.repository(here) or here, given)
    return found if found.is_file() and found.stat().st_size <= contract.MAX_SOURCE_BYTES else None
