"""Operand text -> :class:`ratchet.tpu.dump.instruction.Form`. Pure."""

from __future__ import annotations

import re
import struct

from ratchet.tpu.dump.instruction import Argument, Form, Hole, Holed, HoledAccess, HoledAddress, Immediate, Unread

REGISTER = re.compile(r"%([a-z]*\d{1,18})(?!\d)(?:_([a-z]+\d{1,18})(?!\d))?")
"""A value, and the register that holds it. Forms have ``%`` in its place."""

_REMARKS = re.compile(r"\[\d+/\d+\](?: \(narrow\))?|\[(?:thread|resolvable):\$\w+\]|, region = \d+$")
_PREDICATE = re.compile(r"\((!?)(?:(%)(, %)?|([01]))\)")
_TARGET = re.compile(r"target bundleno = (\d{1,18}) \((0x[0-9a-f]{1,16})\)$")
_ARGUMENT = re.compile(r"\[shape: .*?, index: (\d{1,6}), kind: (\w+), shape index: .*\]$")
_ALLOCATION = re.compile(r"#allocation\w+")
_NUMBER = r"-?(?:\d{1,80}\.\d{0,80}(?:e[+-]?\d{1,9})?|\d{1,80}e[+-]?\d{1,9}|inf|nan|\d{1,80})"
_OPERAND = re.compile(
    rf"(?:(?P<name>\w+)=)?(?:"
    rf"(?P<register>%)(?: \[#allocation\w+\])?"  # behind it, the allocation that the address is in
    rf"|(?P<number>{_NUMBER})(?: \[#allocation\w+\])?"
    rf"|\[(?P<address>#allocation[^\[\]:]*)\]"
    rf"|\[(?P<space>[sv]mem):\[(?P<inside>[^\[\]]*)\](?P<rows>[^\[\]]*)\]"
    rf")(?=[\s,]|$)"
)
_SEPARATOR = re.compile(r"[\s,]*")
_OFFSET = re.compile(r"\$0x([0-9a-f]{1,8})$")
_WHOLE_ROWS = re.compile(r"( sm:\$0x[0-9a-f]+)?$")
_LARGEST = 1 << 32


def read_form(text: str) -> Form:
    """Reads an operand text in which every register is ``%``.

    What does not read becomes an :class:`Unread` operand; the caller knows whether that matters.
    """
    rest = _REMARKS.sub("", text).strip()
    allocations = tuple(_ALLOCATION.findall(text))
    target = argument = predicate = None
    matched = _ARGUMENT.search(rest)
    if matched is not None:
        argument = Argument(int(matched[1]), matched[2])
        rest = ""
    matched = _PREDICATE.search(rest)
    if matched is not None:
        hole = rest.count("%", 0, matched.start())
        predicate = (
            Hole(hole) if matched[2] else matched[4] == "1",
            bool(matched[1]),
            Hole(hole + 1) if matched[3] else None,
        )
        # Only its registers stay, so that those behind it keep their places.
        holes = "\0" * (bool(matched[2]) + bool(matched[3]))
        rest = rest[: matched.start()] + holes + rest[matched.end() :]
    matched = _TARGET.search(rest)
    if matched is not None and int(matched[1]) == int(matched[2], 16):
        target = int(matched[1])
        rest = rest[: matched.start()]
    return Form(
        text=text,
        operands=tuple(_operands(rest)),
        predicate=predicate,
        allocations=allocations,
        spill=any("_spill" in name for name in allocations),
        target=target,
        argument=argument,
    )


def _operands(text: str) -> list[tuple[str, Holed]]:
    operands: list[tuple[str, Holed]] = []
    position = hole = 0
    while True:
        position = _SEPARATOR.match(text, position).end()  # type: ignore[union-attr]  # it may be empty
        if position < len(text) and text[position] == "\0":
            hole += 1
            position += 1
            continue
        if position == len(text):
            return operands
        match = _OPERAND.match(text, position)
        if match is None:
            operands.append(("", Unread(text[position:].replace("\0", "%"))))
            return operands
        operands.append((match["name"] or "", _value(match, hole)))
        hole += match[0].count("%")
        position = match.end()


def _value(match: re.Match[str], hole: int) -> Holed:
    if match["register"]:
        return Hole(hole)
    if match["number"]:
        return Immediate(_word(match["number"]))
    inside = match["address"] if match["address"] is not None else match["inside"]
    address = _address(inside, hole)
    if address is None:
        return Unread(match[0])
    if match["space"]:
        return HoledAccess(match["space"], address, _WHOLE_ROWS.match(match["rows"]) is not None)
    return address


def _address(text: str, hole: int) -> HoledAddress | None:
    allocation, offset = "", 0
    holes: list[int] = []
    for number, term in enumerate(text.split(" + ")):
        shift = _OFFSET.match(term)
        if term == "%":
            holes.append(hole + len(holes))
        elif shift is not None:
            offset += int(shift[1], 16)
        elif term.isdecimal() and len(term) < 18 and int(term) < _LARGEST:
            offset += int(term)
        elif not number and _ALLOCATION.fullmatch(term):
            allocation = term
        else:
            return None
    return HoledAddress(allocation, offset, tuple(holes))


def _word(text: str) -> int:
    """A number as a signed word: integers modulo 2**32, floats as the bits of the nearest float32."""
    if text.lstrip("-").isdecimal():
        return (int(text) + 2**31) % 2**32 - 2**31
    try:
        packed = struct.pack("<f", float(text))
    except OverflowError:
        packed = struct.pack("<f", float("-inf" if text[0] == "-" else "inf"))
    return int(struct.unpack("<i", packed)[0])
