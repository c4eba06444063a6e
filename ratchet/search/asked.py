"""What goes to a node and what comes back: a candidate as bytes, a verdict as a value; each one line of JSON.

A node that measures is first asked which device it has: the conditions of a measured series name it.

A node judges with its own clone. It is asked under which conditions, and refuses where its own judge is another one:
another seal holds another ``requirements.lock``, another interpreter or other sources.
"""

from __future__ import annotations

import base64
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
    """Which comparison of the ledger this is: see ``values.Against``."""


@dataclass(frozen=True, kw_only=True)
class Asked:
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
class Which:
    """Which device has a node that measures?"""

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


def question(asked: Asked | Which) -> bytes:
    """One line."""
    if isinstance(asked, Which):
        return json.dumps({"which": asked.evaluator}).encode() + b"\n"
    record = {
        "text": base64.b64encode(asked.text).decode(),
        "kernel": asked.kernel,
        "lock": None if asked.lock is None else base64.b64encode(asked.lock).decode(),
        "conditions": encode(asked.conditions),
        "chip": asked.chip,
        "remember": asked.remember,
        "model_only": asked.model_only,
        "beside": asked.beside and [base64.b64encode(asked.beside.text).decode(), asked.beside.test],
    }
    return json.dumps(record).encode() + b"\n"


def asked_of(line: bytes) -> Asked | Which:
    """Undoes ``question``.

    Raises:
      ValueError, KeyError, TypeError: for what is none.
    """
    record = json.loads(line)
    if "which" in record:
        return Which(evaluator=str(record["which"]))
    beside = record["beside"]
    return Asked(
        text=base64.b64decode(record["text"]),
        kernel=str(record["kernel"]),
        lock=None if record["lock"] is None else base64.b64decode(record["lock"]),
        conditions=decode(Conditions, record["conditions"]),
        chip=str(record["chip"]),
        remember=bool(record["remember"]),
        model_only=bool(record["model_only"]),
        beside=Beside(text=base64.b64decode(beside[0]), test=int(beside[1])) if beside else None,
    )


def answer(of: Verdict | Device | Unfit | Refusal) -> bytes:
    """One line."""
    if isinstance(of, Unfit):
        record: dict[str, object] = {"unfit": of.why}
    elif isinstance(of, Device):
        record = {"device": [of.chip, of.compiler]}
    elif isinstance(of, Refusal):
        record = {"refused": [of.status.name, of.message]}
    else:
        record = {"verdict": encode(of)}
    return json.dumps(record).encode() + b"\n"


def answered(line: bytes) -> Verdict | Device | Unfit:
    """Undoes ``answer``.

    Raises:
      Refusal: what the node's judge raised: its machine is in trouble, and not the kernel.
      ValueError, KeyError, TypeError: for what is no answer.
    """
    record = json.loads(line)
    if "unfit" in record:
        return Unfit(why=str(record["unfit"]))
    if "device" in record:
        chip, compiler = record["device"]
        return Device(chip=str(chip), compiler=str(compiler))
    if "refused" in record:
        name, message = record["refused"]
        raise Refusal(Status[name], str(message))
    return decode(Verdict, record["verdict"])
