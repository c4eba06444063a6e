"""What goes to a node and what comes back: a candidate as bytes, a verdict as a value; each one line of JSON.

A node that measures is first asked which device it has: the conditions of a measured series name it.

A node judges with its own clone. It is asked under which conditions, and refuses where its own judge is another one:
another seal holds another ``requirements.lock``, another interpreter or other sources.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from ratchet.loop.decide import speaks_of_the_kernel
from ratchet.values import MEASURED, Conditions, Launch, Verdict
from ratchet.values.encoding import decode, encode
from ratchet.values.status import Refusal, Status

ANSWER_BYTES = 64 << 20
"""A verdict takes a few MB at most."""
_TEXT = 4000
_LAUNCHES = 10_000


@dataclass(frozen=True, kw_only=True)
class Beside:
    """The incumbent that a measured candidate is timed beside."""

    text: bytes
    test: int
    """DeviceRequest comparison of the ledger this is: see ``values.Against``."""


@dataclass(frozen=True, kw_only=True)
class JudgeRequest:
    """One candidate that is to be judged."""

    text: bytes
    kernel: str
    """What the file is called in the repository, relative to its top."""
    lock: bytes | None
    """Its frozen problem; None where there is none yet."""
    conditions: Conditions
    """``conditions.evaluator`` says whether it is modelled or measured."""
    chip: str
    remember: bool
    model_only: bool = True
    """Modelled: leave out the values."""
    beside: Beside | None = None


@dataclass(frozen=True, kw_only=True)
class DeviceRequest:
    """DeviceRequest device has a node that measures?"""

    evaluator: str


@dataclass(frozen=True, kw_only=True)
class Device:
    """What the conditions of a measured series say of the device."""

    chip: str
    compiler: str


@dataclass(frozen=True, kw_only=True)
class Unfit:
    """A node that does not judge for this driver, and why."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Timed:
    """What one node measured."""

    verdict: Verdict
    node: str


def encode_request(asked: JudgeRequest | DeviceRequest) -> bytes:
    """One line."""
    return json.dumps(encode(asked)).encode() + b"\n"


def decode_request(line: bytes) -> JudgeRequest | DeviceRequest:
    """Undoes ``encode_request``.

    Raises:
      ValueError: for what is none.
    """
    return decode(JudgeRequest | DeviceRequest, json.loads(line))  # type: ignore[arg-type]


def encode_answer(of: Verdict | Device | Unfit | Refusal) -> bytes:
    """One line."""
    said = {"refused": [of.status.name, of.message]} if isinstance(of, Refusal) else encode(of)
    return json.dumps(said).encode() + b"\n"


def decode_answer(line: bytes) -> Verdict | Device | Unfit:
    """Undoes ``encode_answer``.

    Raises:
      Refusal: what the node's judge raised: its machine is in trouble, and not the kernel.
      ValueError, KeyError, TypeError: for what is no answer.
    """
    if not isinstance(line, bytes) or len(line) > ANSWER_BYTES:
        raise ValueError(f"wanted at most {ANSWER_BYTES} bytes")
    try:
        said = json.loads(line)
        if not isinstance(said, dict):
            return decode(Verdict | Device | Unfit, said)  # type: ignore[arg-type]
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    name, message = said["refused"]
    if speaks_of_the_kernel(Status[name]):
        raise ValueError(f"{name} is a verdict, and no trouble of a machine")
    raise Refusal(Status[name], str(message)[:_TEXT])


def check_answer(asked: JudgeRequest | DeviceRequest, said: Verdict | Device) -> None:
    """Raises ValueError where this is no answer to what was asked: of another kernel, or no timings where some are due.

    Whether it is true only judging again can say.
    """
    if isinstance(asked, DeviceRequest):
        if not isinstance(said, Device) or not (said.chip + said.compiler).isprintable():
            raise ValueError("wanted a device with a name")
        return
    if not isinstance(said, Verdict) or len(said.reason) > _TEXT:
        raise ValueError(f"wanted a verdict with a reason of at most {_TEXT} characters")
    if (said.kernel, said.conditions, said.conditions.seal) != (asked.kernel, asked.conditions, asked.conditions.seal):
        raise ValueError("it is about another kernel, or was made under other conditions")
    if asked.model_only and said.status is Status.PASS:
        raise ValueError("a latency alone was asked for, which is no PASS")
    launches = said.samples.launches if said.samples else ()
    if said.score and not (math.isfinite(said.score.score) and math.isfinite(said.score.latency_ms)):
        raise ValueError("its score is no number")
    if said.score and is_measured(asked) and not 0 < len(launches) <= _LAUNCHES:
        raise ValueError("it has no timings")
    if not all(_is_timed(one, paired=asked.beside is not None) for one in launches):
        raise ValueError("its timings are no times")


def is_measured(asked: JudgeRequest) -> bool:
    """Whether a device is to be timed."""
    return asked.conditions.evaluator in MEASURED


def _is_timed(launch: Launch, *, paired: bool) -> bool:
    times = (launch.candidate_ms, launch.incumbent_ms, launch.candidate_device_ms, launch.incumbent_device_ms)
    there = bool(launch.candidate_ms) and (bool(launch.incumbent_ms) or not paired)
    return there and all(math.isfinite(one) and one > 0 for several in times for one in several)
