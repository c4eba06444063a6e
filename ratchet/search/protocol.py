"""What goes to a node and what comes back: a candidate as bytes, a verdict as a value; each one line of JSON.

A node that measures is first asked which device it has: the conditions of a measured series name it.

A node judges with its own clone. It is asked under which conditions, and refuses where its own judge is another one:
another seal holds another ``requirements.lock``, another interpreter or other sources.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ratchet.values import Conditions, Verdict
from ratchet.values.encoding import decode, encode
from ratchet.values.status import Refusal, Status


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
    said = json.loads(line)
    if isinstance(said, dict):
        name, message = said["refused"]
        raise Refusal(Status[name], str(message))
    return decode(Verdict | Device | Unfit, said)  # type: ignore[arg-type]
