"""The modelled latency of a compiled program, asked of the schedule machine's jailed child."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ratchet.process import paths
from ratchet.process.sandbox.child import Child, Ending, Limits, Walls
from ratchet.process.sandbox.warm import Warm
from ratchet.tpu.chips import Chip
from ratchet.tpu.computed_operands import Steering
from ratchet.values import Mesh, Program, Timeline, records
from ratchet.values.encoding import decode, encode
from ratchet.values.status import KILLED, Ended, Refusal, Status

WORKER = "ratchet.exam.judge.schedule_worker"
LIMITS = Limits(seconds=900, memory_bytes=12 << 30)
TIMELINE_BYTES = 1 << 30
REQUEST, ARRAYS, TIMELINE = "request.json", "arrays.npz", "timeline.json"

_KINDS = {
    "refused": records.is_refused,
    "internal": records.is_text,
    "traceback": records.is_text,
    "timeline": lambda value: isinstance(value, list),
    "summary": records.is_text,
}
"""Fields of an answer."""


def start(workdir: Path, warm: Warm | None = None) -> Child:
    """Start the machine's child; it answers any number of requests and reads what other children left."""
    return Child(WORKER, directory=workdir, walls=Walls(readable=(workdir.parent.resolve(),)), warm=warm)


def step(
    child: Child,
    program: Program,
    chip: Chip,
    mesh: Mesh,
    steering: Steering,
    *,
    computed: Sequence[Steering] = (),
    detail: bool = False,
) -> tuple[Timeline, str]:
    """As ``latency.step``, by ``child``.

    Raises:
      Refusal: as ``latency.step``; ``SCHEDULE_UNKNOWN`` where the machine does not end, ``INTERNAL`` where it fails.
    """
    import numpy as np

    folder = child.request()
    asked = {"program": encode(program), "chip": chip.name, "mesh": encode(mesh), "detail": detail}
    paths.write(folder / REQUEST, json.dumps(asked).encode())
    named = {f"-1:{key!r}": value for key, value in steering.items()}
    for place, one in enumerate(computed):
        named |= {f"{place}:{key!r}": value for key, value in one.items()}
    np.savez(folder / ARRAYS, **named)
    ending = child.ask(folder, LIMITS)
    if ending.how != "answered":
        raise _ended(ending)
    try:
        data = paths.read(folder / TIMELINE, TIMELINE_BYTES)
    except (OSError, ValueError) as error:
        raise _no_timeline(str(error)) from None
    return timeline_in(data)


def timeline_in(data: bytes) -> tuple[Timeline, str]:
    """The machine's answer: a timeline and its summary.

    Raises:
      Refusal: what the machine refused; ``INTERNAL`` where the answer is none.
      RuntimeError: what failed in the machine.
    """
    answer = records.read(data, _KINDS, _no_timeline)
    if "refused" in answer:
        status, message = answer["refused"]
        raise Refusal(Status[status], message)
    if "internal" in answer:
        raise RuntimeError(f"the schedule machine: {answer['internal']}\n{answer['traceback']}")
    try:
        return decode(Timeline, answer["timeline"]), answer["summary"]
    except (ValueError, TypeError) as error:
        raise _no_timeline(str(error)) from None


def steered(arrays: Mapping[str, Any]) -> tuple[dict[int | str, Any], list[dict[int | str, Any]]]:
    """The machine's side of a request's arrays: what steers, and what XLA computes, per mesh index."""
    steering: dict[int | str, Any] = {}
    computed: dict[int, dict[int | str, Any]] = {}
    for name, array in arrays.items():
        place, _, key = name.partition(":")
        own: int | str = key[1:-1] if key.startswith(("'", '"')) else int(key)
        (steering if int(place) < 0 else computed.setdefault(int(place), {}))[own] = array
    return steering, [computed[place] for place in sorted(computed)]


def _no_timeline(why: str) -> Refusal:
    return Refusal(Status.INTERNAL, f"the schedule machine left no timeline: {why:.300}")


def _ended(ending: Ending) -> Refusal:
    how = ending.how
    if how == "timeout":
        return Ended(Status.SCHEDULE_UNKNOWN, f"the schedule machine did not end in {LIMITS.seconds:.0f} s")
    if how == "memory":
        return Ended(Status.SCHEDULE_UNKNOWN, f"the schedule machine took more than {LIMITS.memory_bytes >> 30} GiB")
    if ending.returncode in KILLED:
        return Ended(Status.INFRASTRUCTURE, "the system ended the schedule machine: free some memory and run again")
    return Refusal(Status.INTERNAL, f"the schedule machine {how}: {ending.last:.300}")
