"""The timing loop: programs called round by round, every call waited for, every output checked. One for all devices.

What is timed is a ``Call``: input arrays in, output arrays out. The loop trusts nothing that it returns: inputs change
with every call, all leaves have to be there before the clock is read, and outputs have to be those that
the same inputs gave before, bit for bit.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ratchet.values.status import Refusal, Status

MIN_ROUNDS, MAX_ROUNDS = 30, 2000
WARM_UP = 2
"""Calls of each program on each set of inputs before anything is timed."""

Arrays = Sequence[Any]
Call = Callable[[Arrays], Arrays]


@dataclass(kw_only=True)
class Timed:
    """One program's part of a launch."""

    name: str
    call: Call
    digests: list[str] = field(default_factory=list)
    """What it returned for each set of inputs before timing."""
    wall_ns: list[int] = field(default_factory=list)


def digest(arrays: Arrays) -> str:
    """SHA-256 of arrays, copied to the host: shapes, dtypes and bytes.

    Raises:
      Refusal: ``WRONG_SHAPE`` for what is no array.
    """
    sha = hashlib.sha256()
    for leaf in arrays:
        array = np.asarray(leaf)
        if array.dtype == object:
            raise Refusal(Status.WRONG_SHAPE, f"an output is {type(leaf).__name__}, wanted a concrete array")
        sha.update(f"{array.dtype.name}{array.shape}".encode())
        sha.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return sha.hexdigest()


def warm_up(program: Timed, sets: Sequence[Arrays], wait: Callable[[Arrays], None]) -> list[Arrays]:
    """Call a program on every set, keep the digests of what it returns, and return the outputs.

    Raises:
      Refusal: ``NON_DETERMINISTIC`` if a later round returns other bits than the first.
    """
    first: list[Arrays] = []
    for number in range(WARM_UP):
        for which, arrays in enumerate(sets):
            outputs = program.call(arrays)
            wait(outputs)
            if number == 0:
                first.append(outputs)
                program.digests.append(digest(outputs))
            else:
                _same(program, which, outputs, f"call {number + 1}")
    return first


def time_rounds(
    programs: Sequence[Timed],
    sets: Sequence[Arrays],
    *,
    wait: Callable[[Arrays], None],
    seconds: float,
    before: Callable[[], None] = lambda: None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> int:
    """Time ``programs``, already warmed up, round by round, for about ``seconds``; returns the number of rounds.

    Every round calls each program once on the same set; the set and the order change from round to round. ``wait``
    returns when all leaves are there; ``before`` runs before each call, outside the clock.

    Raises:
      Refusal: ``NON_DETERMINISTIC`` if a call returns other bits than the same inputs gave while warming up,
        ``INPUTS_CHANGED`` if inputs are not what they were.
    """
    given = [digest(arrays) for arrays in sets]
    spent, rounds = 0, 0
    while rounds < MIN_ROUNDS or (rounds < MAX_ROUNDS and spent < seconds * 1e9):
        which = rounds % len(sets)
        for program in programs if rounds % 2 == 0 else reversed(programs):
            before()
            start = clock()
            outputs = program.call(sets[which])
            wait(outputs)
            elapsed = clock() - start
            program.wall_ns.append(elapsed)
            spent += elapsed
            _same(program, which, outputs, f"timed call {rounds + 1}")
            del outputs
        rounds += 1
    for program in programs:  # and once more, after the clock has stopped
        for which, arrays in enumerate(sets):
            outputs = program.call(arrays)
            wait(outputs)
            _same(program, which, outputs, "a call after timing")
    if [digest(arrays) for arrays in sets] != given:
        raise Refusal(Status.INPUTS_CHANGED, "the inputs are not what they were before timing")
    return rounds


def _same(program: Timed, which: int, outputs: Arrays, when: str) -> None:
    if digest(outputs) != program.digests[which]:
        raise Refusal(
            Status.NON_DETERMINISTIC,
            f"{when} of the {program.name} returned other values than the same inputs gave before; "
            "wanted a program that computes its answer anew in every call",
        )


def check_clocks(wall_ns: Sequence[int], device_ns: Sequence[int]) -> None:
    """Refuse wall times below device times: such a call was not waited for.

    Raises:
      Refusal: ``INVALID``.
    """
    if device_ns and len(device_ns) != len(wall_ns):
        raise Refusal(
            Status.INVALID, f"{len(wall_ns)} calls were timed, the device's profile shows {len(device_ns)} runs"
        )
    for number, (wall, device) in enumerate(zip(wall_ns, device_ns, strict=False), start=1):
        if wall < device:
            raise Refusal(
                Status.INVALID,
                f"timed call {number} took {wall / 1e6:.4g} ms by the wall clock and {device / 1e6:.4g} ms on the "
                "device; a call that is waited for cannot be shorter than its own work",
            )
