"""A SparseCore's program as the compiler writes it under ``--xla_sc_dump_bundles_to``. Pure.

One file holds an operation: a section for the sequencer (``scs``) and, where it has tasks for the tiles, one for them
(``tec``). A bundle has an address of its own and issues in one cycle; ``sdelay`` stalls explicitly. Addresses begin at
0 in each section.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ratchet.values.status import Refusal, Status

SEQUENCER, TILES = "scs", "tec"

_SECTION = re.compile(r"(?m)^(?=[a-z]+$)")
_PART = re.compile(
    r"(?s)(?P<label>[.\w$]+):\n|0x(?P<address>[0-9a-f]{1,6}): \{(?P<body>[^{}]*)\}\n"
    r"|(?P<name>[a-z]+)\n|\s+|(?P<other>.)"
)
_ITEM = re.compile(r"(?s)([^=]*?)\s*=\s*(\S+)(?:\s+(.*))?")
_OPERAND = re.compile(r"(?:\[[^\]]*\]|[^,\[\]])+")


class Instruction(NamedTuple):
    """One slot of a bundle: ``s1 = sadd.s32 @!p0 s2, s3``."""

    targets: tuple[str, ...]
    opcode: str
    predicate: str
    """``p0``, ``!p0``, or ``""`` for always."""
    operands: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Section:
    """The program of one kind of core."""

    bundles: tuple[tuple[Instruction, ...], ...]
    """By address."""
    labels: Mapping[str, int]


def parse(text: str, *, file: str, compiler: str) -> dict[str, Section]:
    """The sections of a file by name.

    Args:
        text: of a ``*_bundles.txt``.
        file: its name, for messages.
        compiler: version of the compiler that wrote it, for messages.

    Raises:
        Refusal: SCHEDULE_UNKNOWN for a text that does not read as one, or lacks a bundle.
    """

    def refuse(what: str) -> Refusal:
        return Refusal(Status.SCHEDULE_UNKNOWN, f"{file} ({compiler}): {what}. Compile again.")

    sections: dict[str, Section] = {}
    for part in filter(str.strip, _SECTION.split(text if text.endswith("\n") else f"{text}\n")):
        name, section = _section(part, refuse)
        if not name or name in sections:
            raise refuse("a section without a name, or with that of another")
        sections[name] = section
    if SEQUENCER not in sections:
        raise refuse("it has no program for the sequencer")
    return sections


def _section(text: str, refuse: Callable[[str], Refusal]) -> tuple[str, Section]:
    name, labels, bundles = "", dict[str, int](), list[tuple[Instruction, ...]]()
    for match in _PART.finditer(text):
        if match["other"]:
            raise refuse(f"{text[match.start() :][:40]!r} is no bundle of a SparseCore's")
        if match["name"]:
            name = match["name"]
        elif match["label"]:
            labels[match["label"]] = len(bundles)
        elif match["body"] is not None:
            if int(match["address"], 16) != len(bundles):
                raise refuse(f"bundle {len(bundles):#x} of {name!r} is missing")
            items = [_ITEM.fullmatch(item.strip()) for item in match["body"].split(";\n")]
            if None in items:
                raise refuse(f"bundle {len(bundles):#x} of {name!r} does not read: {match['body'].strip()[:60]!r}")
            bundles.append(tuple(_instruction(*item.groups("")) for item in items if item))
    return name, Section(bundles=tuple(bundles), labels=labels)


def _instruction(target: str, opcode: str, rest: str) -> Instruction:
    predicate = ""
    if rest.startswith("@"):
        predicate, _, rest = rest[1:].partition(" ")
    return Instruction(_operands(target), opcode, predicate, _operands(rest))


def _operands(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in _OPERAND.findall(text) if part.strip())
