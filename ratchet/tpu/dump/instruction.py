"""One instruction of a compiled program as a value: registers, immediates, addresses, predicate, annotations. Pure.

What an operand text says apart from its registers is a :class:`Form`. A program has hundreds of thousands of
instructions and a few thousand forms, so each form is read and checked once, and typed operands are made on demand.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

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


class Register(NamedTuple):
    """A value of the program and the register that holds it: ``%s12_s0`` is value 12 in scalar register 0."""

    bank: str
    """``s`` scalar, ``p`` predicate, ``v`` vector, ``vm`` vector mask; ``""`` for an entry of a queue."""
    value: int
    number: int | None
    """Physical register of the bank; None for an entry of a queue."""

    @property
    def name(self) -> str:
        """Name of the value: ``s12``."""
        return f"{self.bank}{self.value}"


class Immediate(NamedTuple):
    """A number in the instruction: a signed 32-bit word, for a float the word that holds its float32 bits."""

    word: int


class Hole(NamedTuple):
    """The place of a register in a form."""

    place: int


R = TypeVar("R", Register, Hole)


class Address(NamedTuple, Generic[R]):
    """An allocation, an offset in the units of its memory and registers, added up."""

    allocation: str
    """``#allocation7``, or ``""``."""
    offset: int
    registers: tuple[R, ...]


class Access(NamedTuple, Generic[R]):
    """Memory that a load or store reaches."""

    space: str
    """``smem`` or ``vmem``."""
    address: Address[R]
    whole_rows: bool
    """False if a stride or a pattern picks rows; True for rows side by side and for scalar memory."""


class Unread(NamedTuple):
    """An operand of vector code in a form that nothing here needs to understand."""

    text: str


Value = Register | Immediate | Address[Register] | Access[Register] | Unread
Holed = Hole | Immediate | Address[Hole] | Access[Hole] | Unread
"""A value of a form."""


class Operand(NamedTuple):
    """One operand."""

    name: str
    """``dst_syncflagno``, or ``""`` for an operand known by its place."""
    value: Value


class Predicate(NamedTuple):
    """The instruction happens only if this holds."""

    holds: Register | bool
    """A predicate register, or True or False where the compiler wrote a constant."""
    negated: bool
    otherwise: Register | None
    """Of a move: where the result comes from if the predicate does not hold."""


class Argument(NamedTuple):
    """What an ``inlined_call_operand`` brings into a listing: an operand or a result of the HLO instruction."""

    number: int
    kind: str
    """``input``, ``output`` or ``const``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """An operand text without its registers. Made by :func:`read_form`."""

    text: str
    """With ``%`` for each register; for messages only."""
    operands: tuple[tuple[str, Holed], ...]
    """Name and value."""
    predicate: tuple[Hole | bool, bool, Hole | None] | None
    allocations: tuple[str, ...]
    """Allocations named anywhere, in order."""
    spill: bool
    """Whether one of them is a spill slot."""
    target: int | None
    """Bundle that a branch goes to."""
    argument: Argument | None

    @property
    def unread(self) -> str:
        """The first operand that could not be read, or ``""``."""
        return next((value.text for _, value in self.operands if isinstance(value, Unread)), "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A place in a source file, as the compiler annotates it."""

    file: str
    line: int
    column: int
    operation: int | None = None
    """Number of the tokenised program's operation; None where it was compiled as its author wrote it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Notes:
    """What the comments beside an instruction say."""

    source: Source | None = None
    """Where the instruction comes from, if the compiler says so."""
    called: str = ""
    """Of a call: the HLO instruction or the runtime's program (``<late-initialization>``) that is called."""
    assertion: str = ""
    """Of an assertion: ``bounds``, ``semaphore`` or ``unknown``."""
    text: str = ""
    """All comments together; for messages only."""
    heads_pipeline: bool = False
    """Whether this is the counter of the loop that the compiler puts around a kernel body."""
    results: str = ""
    """Of a division: ``quotient``, ``remainder`` or ``both``, as many as it gives."""
    between: tuple[str, str] | None = None
    """Of a general DMA: the memories that it reads and writes."""
    waits_for_launch: bool = False
    """Whether this is a wait of the chips for each other before the program proper."""


NO_NOTES = Notes()


class Instruction(NamedTuple):
    """One instruction. Values are known by name (``s12``, ``p3``, ``v7``; ``10`` for an entry of a queue)."""

    opcode: str
    makes: str
    """Name of the value that it makes."""
    register: str
    """Physical register of that value, ``s0``; ``""`` for none."""
    reads: tuple[str, ...]
    """Names of the values that it reads, in order."""
    registers: tuple[str | None, ...]
    """Physical register of each of them."""
    form: Form
    notes: Notes = NO_NOTES

    @property
    def dest(self) -> Register:
        """The value that it makes and where."""
        return register(self.makes, self.register)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All operands but the predicate, in order."""
        return tuple([Operand(name, self._filled(value)) for name, value in self.form.operands])

    @property
    def predicate(self) -> Predicate | None:
        """What decides whether it happens; None if it always does."""
        form = self.form.predicate
        if form is None:
            return None
        holds, negated, otherwise = form
        return Predicate(
            self._register(holds) if isinstance(holds, Hole) else holds,
            negated,
            self._register(otherwise) if otherwise else None,
        )

    @property
    def space(self) -> str:
        """Of an ``inlined_call_operand``: its memory, ``""`` for a scalar passed by value."""
        return self.opcode.partition(".")[2]

    @property
    def moves(self) -> bool:
        """Whether the result is in another register than the last operand."""
        return not self.registers or self.registers[-1] != self.register

    def named(self, name: str) -> Value | None:
        """The operand of that name, the last one if there are several; None if there is none."""
        last = None
        for own, value in self.form.operands:
            if own == name:
                last = value
        return None if last is None else self._filled(last)

    def __str__(self) -> str:
        pieces = self.form.text.split("%")
        names = [f"%{value}_{at}" if at else f"%{value}" for value, at in zip(self.reads, self.registers, strict=True)]
        text = "".join([piece + name for piece, name in zip(pieces, [*names, ""], strict=True)])
        return f"{self.opcode} {text}".strip()

    def _register(self, hole: Hole) -> Register:
        return register(self.reads[hole.place], self.registers[hole.place])

    def _filled(self, value: Holed) -> Value:
        if isinstance(value, Hole):
            return self._register(value)
        if isinstance(value, Address):
            return self._address(value)
        if isinstance(value, Access):
            return Access(value.space, self._address(value.address), value.whole_rows)
        return value

    def _address(self, value: Address[Hole]) -> Address[Register]:
        return Address(value.allocation, value.offset, tuple([self._register(hole) for hole in value.registers]))


Bundle = tuple[Instruction, ...]
"""Instructions that are issued together, in one cycle."""


def register(name: str, physical: str | None) -> Register:
    """``("s12", "s0")`` as a register."""
    bank = name.rstrip("0123456789")
    number = int(physical.lstrip("abcdefghijklmnopqrstuvwxyz")) if physical else None
    return Register(bank, int(name[len(bank) :]), number)


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
        return Access(match["space"], address, _WHOLE_ROWS.match(match["rows"]) is not None)
    return address


def _address(text: str, hole: int) -> Address[Hole] | None:
    allocation, offset = "", 0
    holes: list[Hole] = []
    for number, term in enumerate(text.split(" + ")):
        shift = _OFFSET.match(term)
        if term == "%":
            holes.append(Hole(hole + len(holes)))
        elif shift is not None:
            offset += int(shift[1], 16)
        elif term.isdecimal() and len(term) < 18 and int(term) < _LARGEST:
            offset += int(term)
        elif not number and _ALLOCATION.fullmatch(term):
            allocation = term
        else:
            return None
    return Address(allocation, offset, tuple(holes))


def _word(text: str) -> int:
    """A number as a signed word: integers modulo 2**32, floats as the bits of the nearest float32."""
    if text.lstrip("-").isdecimal():
        return (int(text) + 2**31) % 2**32 - 2**31
    try:
        packed = struct.pack("<f", float(text))
    except OverflowError:
        packed = struct.pack("<f", float("-inf" if text[0] == "-" else "inf"))
    return int(struct.unpack("<i", packed)[0])
