"""A kernel file that is traced while the judge still imports what it takes to judge one.

A verdict waits for that trace first, and then for nothing that is imported here. Nothing is decided: the trace counts
where the verdict wants the same of the same bytes, from a child of the same process.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
from dataclasses import dataclass
from pathlib import Path

from ratchet import home, warm
from ratchet.candidate import contract, problem, room
from ratchet.chips import CHIPS, Chip
from ratchet.judge.place import Place
from ratchet.measure import devices
from ratchet.values.status import Refusal
from ratchet.warm import Warm


@dataclass(frozen=True, kw_only=True)
class Early:
    """A child that traces a kernel file already, and what it was forked of."""

    asked: room.Asked
    authors: Warm
    place: Place

    def close(self) -> None:
        """End it. Safe to call twice."""
        with contextlib.suppress(OSError):
            self.asked.child.close()
        self.place.close()


_BEGUN: list[Early] = []


def begin(options: argparse.Namespace) -> None:
    """Trace the file that a command line names, if it is to be judged by a model.

    What fails is tried again, and said, where it is needed.
    """
    authors = warm.waiting(warm.AUTHOR)
    with contextlib.suppress(OSError, Refusal):
        kernel, chip = _kernel(options), _chip(options.on)
        if authors is None or kernel is None or chip is None:
            return
        wanted = room.Wanted(
            source=kernel.read_bytes(),
            name=kernel.name,
            freeze=getattr(options, "new_problem", False) or not problem.lock_path(kernel).exists(),
            chip=chip,
        )
        place = Place()
        child = room.start(place.root / "candidate", warm=authors)
        _BEGUN.append(Early(asked=room.ask_at_once(wanted, child), authors=authors, place=place))
        atexit.register(forget)


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


def _kernel(options: argparse.Namespace) -> Path | None:
    """As the command line finds it; None for what cannot be one."""
    here, named = Path.cwd(), options.kernel or Path(home.KERNEL)
    own = [here] if options.kernel or home.INSTALLED else []
    found = next((at / named for at in (*own, home.repository(here) or here) if (at / named).is_file()), None)
    return found.resolve() if found and found.stat().st_size <= contract.MAX_SOURCE_BYTES else None


def _chip(asked: str | None) -> Chip | None:
    """The chip that is modelled; None for what is traced for another platform."""
    evaluator = asked or devices.preferred()
    name = devices.device(evaluator) if evaluator == "tpu" else devices.MODELS.get(evaluator)
    return CHIPS.get(name) if name else None
