"""Text of a compiled program -> bundles. The only module that knows the compiler's dump format. Pure.

Two texts per program are read:

* the *listing* (``*-packed-bundles-post-ra.txt``): VLIW bundles after register allocation, one
  address per cycle, stall cycles as explicit empty bundles;
* the *outline* (``*-post-bundle-packing-post-ra.txt``): where each ``#allocation`` lives, and how
  many bundles the listing must have.

Comments in the listing nest; operand markers (``/*hbm=*/``) become part of the operand (``hbm=``), all
other comments are kept beside their instruction, because the source location, the called HLO and the
reason of an assertion are only told there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ratchet.values.status import Refusal, Status


class Instruction(NamedTuple):
    """One instruction of a bundle. Operands stay text until something needs them: most are vector code."""

    opcode: str
    dest: str
    """``s12_s0`` (value 12 in scalar register 0), ``p3_p1``, ``v7_v2`` or a bare number for no register."""
    operands: str
    notes: tuple[str, ...]
    """Comments that stood inside or behind the instruction, without their delimiters."""


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """A ``#allocation`` of the outline."""

    name: str
    space: str
    """``smem``, ``vmem``, ``hbm``, ``sflag`` or ``cmem``."""
    size_bytes: int
    offset_bytes: int | None
    fixed: bool
    """True if ``offset_bytes`` is an absolute address, shared with other programs."""
    tag: str


@dataclass(frozen=True, kw_only=True)
class Listing:
    """One compiled program: ``bundles[address]`` are the instructions issued together in one cycle."""

    file: str
    bundles: Sequence[tuple[Instruction, ...]]
    regions: Sequence[str]
    """Per address, the region comment behind the bundle (``Start region 3 :: End region 2``) or ``""``."""
    loop_depth: Sequence[int]
    """Per address, how many loops the compiler says it is inside of."""
    allocations: dict[str, Allocation]


_OPERAND_MARKER = re.compile(r"/\*(\w+=)\*/")
_DELIMITER = re.compile(r"(/\*|\*/)")
_NOTE = re.compile("\x01(\\d+)\x02")
_RECORD = re.compile(r"^ *(0x[0-9a-f]+|0) ([A-Z, ]*):((?: >+)?)\s+\{(.*)\}([^{}]*)$")
_START = re.compile(r"(?m)^(?= *(?:0x[0-9a-f]+|0) [A-Z, ]*:)")
_Refuse = Callable[[str], Refusal]
_HEADER_END = "= control target key end"


def parse(listing: str, outline: str, *, file: str, compiler: str) -> Listing:
    """Reads one program.

    Args:
        listing: text of ``*-packed-bundles-post-ra.txt``.
        outline: text of ``*-post-bundle-packing-post-ra.txt`` of the same program.
        file: name of the listing, for messages.
        compiler: version of the compiler that wrote it, for messages.

    Raises:
        Refusal: SCHEDULE_UNKNOWN if the text is truncated, corrupted or in a form never seen.
    """

    def refuse(what: str) -> Refusal:
        return Refusal(
            Status.SCHEDULE_UNKNOWN,
            f"{file} ({compiler}): {what}. Compile again with fresh dumps; if it stays, the dump format changed.",
        )

    _, header, body = listing.partition(_HEADER_END)
    if not header:
        raise refuse(f"no line {_HEADER_END!r}: not a bundle listing, or cut off")
    text, notes = _set_comments_aside(body, refuse)
    allocations, expected = parse_outline(outline, file=file, compiler=compiler)

    bundles: list[tuple[Instruction, ...]] = []
    regions: list[str] = []
    depths: list[int] = []
    records = _START.split(text)
    if records[0].strip():
        raise refuse(f"text before the first bundle: {records[0].strip()[:80]!r}")
    for record in records[1:]:
        # Only comments hold line breaks, and those are set aside: a bundle is one line.
        match = _RECORD.match(record.strip("\n"))
        if match is None:
            raise refuse(f"bundle {len(bundles):#x} does not read as a bundle: {record.strip()[:80]!r}")
        address, _, loops, inside, after = match.groups()
        if int(address, 16) != len(bundles):
            raise refuse(f"bundle {address} where {len(bundles):#x} was due")
        depths.append(loops.count(">"))
        regions.append(" ".join(notes[int(i)] for i in _NOTE.findall(after)) if after else "")
        bundles.append(_instructions(inside, notes, address, refuse) if inside else ())
    if len(bundles) == expected + 1 and all(i.opcode.startswith("inlined_call_operand") for i in bundles[-1]):
        expected += 1  # a bundle behind the last instruction, there to be fallen or branched to, lies in no region
    if len(bundles) != expected:
        raise refuse(f"{len(bundles)} bundles, but the compiler's outline says {expected}: the dump is incomplete")
    return Listing(file=file, bundles=bundles, regions=regions, loop_depth=depths, allocations=allocations)


def _set_comments_aside(body: str, refuse: _Refuse) -> tuple[str, list[str]]:
    """Replaces each outermost comment by a numbered mark; returns the text and the comments."""
    pieces = _DELIMITER.split(_OPERAND_MARKER.sub(r"\1", body))
    kept: list[str] = []
    notes: list[str] = []
    known: dict[str, str] = {}
    depth = 0
    inner: list[str] = []
    for piece in pieces:
        if piece == "/*":
            if depth:
                inner.append(piece)
            depth += 1
        elif piece == "*/":
            depth -= 1
            if depth < 0:
                raise refuse("a comment ends that never began")
            if depth:
                inner.append(piece)
                continue
            comment = "".join(inner).strip()
            inner.clear()
            mark = known.get(comment)
            if mark is None:
                mark = known[comment] = f"\x01{len(notes)}\x02"
                notes.append(comment)
            kept.append(mark)
        elif depth:
            inner.append(piece)
        else:
            kept.append(piece)
    if depth:
        raise refuse("a comment never ends: the dump is cut off")
    return "".join(kept), notes


def _instructions(inside: str, notes: list[str], address: str, refuse: _Refuse) -> tuple[Instruction, ...]:
    found = []
    for part in inside.split(" ;; "):
        text, *marked = part.split("\x01")
        if marked:
            # Each piece is the number of a comment, a closing mark, and the text that followed the comment.
            split = [piece.partition("\x02") for piece in marked]
            text += "".join([after for _, _, after in split])
            own = tuple([notes[int(number)] for number, _, _ in split])
        else:
            own = ()
        dest, equals, rest = text.strip().partition(" = ")
        opcode, _, operands = rest.partition(" ")
        if not equals or dest[0] != "%" or not opcode or not dest[1:].replace("_", "").isalnum():
            raise refuse(f"bundle {address}: {text.strip()[:80]!r} does not read as an instruction")
        found.append(Instruction(opcode, dest[1:], operands.strip(), own))
    return tuple(found)


_ALLOCATION = re.compile(
    r"(?m)^ *(#allocation\w+) \[shape = '[^']*', space=(\w+), size = (0x[0-9a-f]+|\d+)"
    r"(?:, offset = (0x[0-9a-f]+|\d+))?((?:, \w+)*)(?:, tag = '(.*)')?\]$"
)
_ANY_ALLOCATION = re.compile(r"(?m)^ *#allocation\w+ \[")
_RANGE = re.compile(r"(?m)^ *\$region0:[^$]*?// region range: \[0, (\d+)\)")


def parse_outline(outline: str, *, file: str, compiler: str) -> tuple[dict[str, Allocation], int]:
    """Allocations by name, and the number of bundles. Raises like :func:`parse`."""
    found = {}
    for name, space, size, offset, flags, tag in _ALLOCATION.findall(outline):
        found[name] = Allocation(
            name=name,
            space=space,
            size_bytes=int(size, 0),
            offset_bytes=int(offset, 0) if offset else None,
            fixed="fixed_abs" in flags,
            tag=tag,
        )
    stated = len(_ANY_ALLOCATION.findall(outline))
    if len(found) != stated:
        raise Refusal(
            Status.SCHEDULE_UNKNOWN,
            f"{file} ({compiler}): {stated} allocations are declared but {len(found)} could be read. "
            "The outline is cut off: compile again. If it stays, the dump format changed.",
        )
    match = _RANGE.search(outline)
    if match is None:
        raise Refusal(
            Status.SCHEDULE_UNKNOWN,
            f"{file} ({compiler}): the outline beside it has no range for region 0: it is cut off. Compile again.",
        )
    return found, int(match.group(1))
