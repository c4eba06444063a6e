"""Listing of a compiled program -> bundles of typed instructions. Pure.

The *listing* (``*-packed-bundles-post-ra.txt``) holds VLIW bundles after register allocation: one address per cycle,
stall cycles as explicit empty bundles. Its outline (:mod:`ratchet.tpu.dump.outline`) says where allocations are.

What is not known is refused here by name. Only operands of vector code may stay unread: vector code is timed and
counted, not executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ratchet.tpu.chips.units import is_vector_code
from ratchet.tpu.dump.columns import Bundles, Columns, Flat, flat
from ratchet.tpu.dump.instruction import (
    NO_NOTES,
    REGISTER,
    Bundle,
    Form,
    Immediate,
    Instruction,
    Notes,
    Source,
    read_form,
)
from ratchet.tpu.dump.outline import Allocation, parse_outline
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import NO_TOKENS, TokenTable

MOST_DELAY = 1 << 20
"""Cycles that one ``vdelay`` may take: far above the few hundred of the runtime's own."""

_RECORD = re.compile(r"^ *(0x[0-9a-f]+|0) [A-Z, ]*:(?: >+)?\s+\{(.*)\}([^{}]*)$")
_HEADER_END = "= control target key end"
_INSTRUCTION = re.compile(r"%([a-z]*\d{1,18})(?:_([a-z]+\d{1,18}))? = ([a-z][\w.\-]*)(?:\[\d+\](\.[\w.\-]+))?(?: |$)")
"""A value, its register, and the opcode, within which there may be the place of a matrix unit's result (``mrb[3]``)."""
_Refuse = Callable[[str], Exception]

NO_SPACE = "inlined_call_operand.<no memory space>"
ARGUMENT = "inlined_call_operand"
"""First part of the opcode that brings an operand or a result into a listing; behind it, the memory."""

BEGIN, END = "\x01", "\x02"
"""Around the number of a comment that was set aside. The compiler escapes such characters in names."""

_COMMENT = re.compile(r'(/\*\w+=\*/|/\* loc\("(?:[^"\\\n]|\\.)*":[\d:to )(]* \*/|/\*|\*/)')
"""An operand marker, a whole location, and where other comments begin and end."""
_LOCATION = re.compile(r'loc\("((?:[^"\\\n]|\\.)*)":(\d{1,9})(?::(\d{1,9}))?')
_CALLED = re.compile(r"%?([\w.\-]+)(?: = |$)|<([\w.\-]+)>$")
_LAUNCH_WAITS = ("global-barrier-wait", "enhanced-barrier-wait")
_RESULTS = {"kDiv": "quotient", "kRem": "remainder", "kDivAndRem": "both"}
_ASSERTIONS = (("BoundsCheck", "bounds"), ("has a nonzero value upon exit", "semaphore"))


@dataclass(frozen=True, kw_only=True)
class Listing:
    """One compiled program: ``bundles[address]`` are the instructions issued together in one cycle."""

    file: str
    bundles: Sequence[Bundle]
    allocations: dict[str, Allocation]
    origin: Sequence[int] = ()
    """Per address, the bundle's number in the compiler's text, where empty bundles were put in; else none."""

    @cached_property
    def columns(self) -> Columns:
        """Its instructions as columns."""
        return self.bundles.columns if isinstance(self.bundles, Bundles) else Columns(flat(self.bundles))

    def later(self, empty: np.ndarray) -> Listing:
        """With so many empty bundles in front of each bundle as ``empty[address]`` says; branches go where they did."""
        numbers = np.arange(len(self.bundles) + 1)
        moved = self.columns.moved(numbers + np.cumsum(np.append(empty, 0)))
        return replace(self, bundles=moved.bundles, origin=np.repeat(numbers[:-1], empty + 1).tolist())

    def where(self, address: int) -> str:
        """``FILE bundle 0x1f``: the bundle at ``address`` by its number in the compiler's text, for messages."""
        return f"{self.file} bundle {self.origin[address] if self.origin else address:#x}"


def parse(
    listing: str,
    outline: str,
    *,
    file: str,
    compiler: str,
    tokens: TokenTable = NO_TOKENS,
) -> Listing:
    """Reads one program.

    Args:
        listing: text of ``*-packed-bundles-post-ra.txt``.
        outline: text of ``*-post-bundle-packing-post-ra.txt`` of the same program.
        file: name of the listing, for messages.
        compiler: version of the compiler that wrote it, for messages.
        tokens: what the source places in the comments stand for, if the program was compiled with tokens.

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
    allocations, expected = parse_outline(outline, file=file, compiler=compiler)
    reader = _Reader(allocations, refuse, tokens)
    bundles = reader.columns(reader.set_aside(body)).bundles
    if len(bundles) == expected + 1 and all(instruction.form.argument for instruction in bundles[-1]):
        expected += 1  # a bundle behind the last instruction, there to be fallen or branched to, is in no region
    if len(bundles) != expected:
        raise refuse(f"{len(bundles)} bundles, but the compiler's outline says {expected}: the dump is incomplete")
    if reader.farthest > len(bundles):
        raise refuse(f"a branch to bundle {reader.farthest:#x}, behind the end: the dump is cut off")
    return Listing(file=file, bundles=bundles, allocations=allocations)


def _parts(line: str) -> list[str]:
    """The instructions of a bundle."""
    match = _RECORD.match(line)
    return match[2].split(" ;; ") if match else []


class _Reader:
    """Reads bundles; each distinct form and set of comments once."""

    def __init__(
        self, allocations: Mapping[str, Allocation] | None, refuse: _Refuse, tokens: TokenTable = NO_TOKENS
    ) -> None:
        self._allocations = allocations
        self._refuse = refuse
        self._tokens = tokens
        self._comments: Sequence[str] = ()
        self._forms: dict[tuple[str, ...], Form] = {}
        self._notes: dict[str, Notes] = {"": NO_NOTES}
        self._known: list[tuple[str, Form, int]] = []
        self._every_notes: list[Notes] = []
        """As in ``Flat``."""
        self._kinds: dict[str, int] = {}
        """By what is left of an instruction without its registers and comments."""
        self._marks: dict[str, int] = {}
        """Notes by the marks of an instruction's comments."""
        self.farthest = 0
        """The largest target of a branch."""

    def set_aside(self, text: str) -> str:
        """``text`` without its comments, which are kept."""
        try:
            text, self._comments = set_aside(text.replace(NO_SPACE, ARGUMENT))
        except ValueError as error:
            raise self._refuse(str(error)) from None
        return text

    def columns(self, text: str) -> Columns:
        """All instructions of a text whose comments are set aside.

        What is left of an instruction without its registers is its shape: hundreds of thousands of instructions have
        some thousand shapes, each of which is read once.
        """
        pieces = REGISTER.split(text)
        taken = "%".join(pieces[::3])
        if taken.count("%") != len(pieces) // 3:  # a `%` of the text's own hides what is where
            every = [
                tuple([self.instruction(part, address) for part in inside])
                for address, inside, _, _ in self._records(text, text)
            ]
            return Columns(flat(every))
        values, registers = pieces[1::3], pieces[2::3]
        read: dict[str, tuple[int, int]] = {}
        kinds, marks, lengths, behind = list[int](), list[int](), list[int](), list[tuple[int, int]]()
        for address, inside, rest, original in self._records(taken, text):
            for place, part in enumerate(inside):
                numbers = read.get(part)
                if numbers is None:
                    numbers = read[part] = self._numbers(part, original, place, address)
                kinds.append(numbers[0])
                marks.append(numbers[1])
            lengths.append(len(inside))
            if "%" in rest:
                behind.append((len(kinds), rest.count("%")))
        for number, values_behind in reversed(behind):
            begin = sum(self._known[kind][2] for kind in kinds[:number]) + sum(n for at, n in behind if at < number)
            del values[begin : begin + values_behind], registers[begin : begin + values_behind]
        return Columns(
            Flat(
                lengths=lengths,
                kinds=kinds,
                known=self._known,
                marks=marks,
                notes=self._every_notes,
                values=values,
                registers=registers,
            )
        )

    def _records(self, text: str, original: str) -> Iterator[tuple[str, Sequence[str], str, str]]:
        """Bundles: address, instructions, what is behind them, and the line of ``original``.

        Comments alone hold line breaks, so a bundle is one line.
        """
        due = 0
        for line, own in zip(text.split("\n"), original.split("\n"), strict=True):
            if not line.strip():
                continue
            match = _RECORD.match(line)
            if match is None:
                raise self._refuse(f"bundle {due:#x} does not read as a bundle: {own.strip()[:80]!r}")
            address, inside, behind = match.groups()
            if int(address, 16) != due:
                raise self._refuse(f"bundle {address} where {due:#x} was due")
            yield address, inside.split(" ;; ") if inside else (), behind, own
            due += 1

    def _numbers(self, part: str, original: str, place: int, address: str) -> tuple[int, int]:
        """Of an instruction without its registers: which of all kinds and of all notes; it is read if need be."""
        shape, _, marked = part.partition(BEGIN)
        kind, mark = self._kinds.get(shape), self._marks.get(marked)
        if kind is not None and mark is not None:
            return kind, mark
        one = self.instruction(_parts(original)[place], address)
        named = part.count("%")
        if named != 1 + len(one.reads):
            raise self._refuse(f"bundle {address}: {part[:80]!r} names {named} values, {len(one.reads) + 1} were read")
        kind, mark = len(self._known), len(self._every_notes)
        self._known.append((one.opcode, one.form, named))
        self._every_notes.append(one.notes)
        if not any(piece.partition(END)[2].strip() for piece in marked.split(BEGIN)):  # no text behind a comment
            self._kinds[shape], self._marks[marked] = kind, mark
        return kind, mark

    def instruction(self, part: str, address: str) -> Instruction:
        text, *marked = part.split(BEGIN)
        key = ""
        if marked:
            # Each piece is the number of a comment, a closing mark, and the text that followed the comment.
            split = [piece.partition(END) for piece in marked]
            text += "".join([after for _, _, after in split])
            key = " ".join([number for number, _, _ in split])
        notes = self._notes.get(key) or self._read_notes(key)
        text = text.strip()
        match = _INSTRUCTION.match(text)
        if match is None:
            raise self._refuse(f"bundle {address}: {text[:80]!r} does not read as an instruction")
        makes, register, opcode, unit = match.groups()
        opcode += unit or ""
        pieces = REGISTER.split(text[match.end() :])
        literals = (opcode, *pieces[::3])
        form = self._forms.get(literals) or self._read_form(literals, address)
        return Instruction(opcode, makes, register or "", tuple(pieces[1::3]), tuple(pieces[2::3]), form, notes)

    def _read_notes(self, key: str) -> Notes:
        notes = read_notes(tuple([self._comments[int(number)] for number in key.split(" ")]))
        self._notes[key] = explained(notes, self._tokens) if self._tokens.sources else notes
        return self._notes[key]

    def _read_form(self, literals: tuple[str, ...], address: str) -> Form:
        opcode, *pieces = literals
        form = self._forms[literals] = read_form("%".join(pieces).strip())
        wrong = "" if is_vector_code(opcode) else self._wrong(opcode, form)
        if wrong:
            raise self._refuse(f"bundle {address}: `{opcode} {form.text[:160]}`: {wrong}")
        self.farthest = max(self.farthest, form.target or 0)
        return form

    def _wrong(self, opcode: str, form: Form) -> str:
        """Why a form of scalar code cannot be, or ``""``."""
        if form.unread:
            return f"operand {form.unread!r} is of unknown form"
        if opcode.startswith("sbr") and (opcode != "sbr.rel" or form.target is None):
            return "a branch of unknown form"
        if opcode.startswith(ARGUMENT) and form.argument is None:
            return "an operand without an index"
        for name in form.allocations:
            if self._allocations is not None and name not in self._allocations:
                return f"{name} is not among the allocations of the outline"
        for name, value in form.operands:
            if isinstance(value, Immediate):
                if opcode == "vdelay" and not 0 < value.word <= MOST_DELAY:
                    return f"a delay of {value.word} cycles"
                if name.startswith("size_in_granules") and value.word < 0:
                    return f"a copy of {value.word} granules"
        return ""


def read_instruction(text: str) -> Instruction:
    """One instruction alone, e.g. ``%v1_v1 = vadd.f32 %v2_v2, %v3_v3 /* loc("k.py":3:8 to :9) */``.

    Raises:
        ValueError: if it does not read as an instruction.
    """
    reader = _Reader(None, ValueError)
    return reader.instruction(reader.set_aside(text), "0")


_BETWEEN = re.compile(r"([a-z]+)-to-([a-z]+)")
# --- comments ---
# They nest. A location holds the name of a source file in quotes, which is read whole: whatever a file is called, it
# neither ends a comment nor begins one. Operand markers (``/*hbm=*/``) become part of the operand (``hbm=``).


def set_aside(body: str) -> tuple[str, list[str]]:
    """Replaces each outermost comment by a number between :data:`BEGIN` and :data:`END`; returns text and comments.

    Hundreds of thousands of comments say a thousand different things: those that say the same share a number.

    Raises:
        ValueError: for comments that do not pair up.
    """
    if BEGIN in body or END in body:
        raise ValueError("a control character in the text")
    numbers: dict[str, int] = {}
    kept = [
        f"{BEGIN}{numbers.setdefault(piece, len(numbers))}{END}" if is_comment else piece
        for piece, is_comment in _pieces(body)
    ]
    return "".join(kept), [comment.strip() for comment in numbers]


def _pieces(body: str) -> Iterator[tuple[str, bool]]:
    """Texts and outermost comments, which are True, in order. Raises ValueError."""
    first, *pieces = _COMMENT.split(body)
    yield first, False
    inner, depth = list[str](), 0
    for piece, text in zip(pieces[::2], pieces[1::2], strict=True):
        if piece == "*/":
            depth -= 1
            if depth < 0:
                raise ValueError("a comment ends that never began")
            if not depth:
                yield "".join(inner), True
                inner.clear()
        said = piece[2:-2] if piece.endswith("=*/") else piece  # an operand marker is text
        if depth:
            inner.append(said)
        elif len(piece) > 2:
            yield piece[2:-2], said is piece
        depth += piece == "/*"
        if depth:
            inner.append(text)
        else:
            yield text, False
    if depth:
        raise ValueError("a comment never ends: the dump is cut off")


def read_notes(comments: tuple[str, ...]) -> Notes:
    """What the comments of one instruction say together."""
    if not comments:
        return NO_NOTES
    called = _CALLED.match(comments[0])
    text = " ".join(comments)
    return Notes(
        source=next((source for comment in comments if (source := read_source(comment))), None),
        called=(called[1] or f"<{called[2]}>") if called else "",
        assertion=next((kind for part, kind in _ASSERTIONS if part in text), "unknown"),
        text=text,
        heads_pipeline="iteration index, stage" in text,
        results=next((_RESULTS[last] for comment in comments if (last := comment.split(" :: ")[-1]) in _RESULTS), ""),
        between=next(((m[1], m[2]) for comment in comments if (m := _BETWEEN.fullmatch(comment))), None),
        waits_for_launch=any(comment in _LAUNCH_WAITS for comment in comments),
    )


def read_source(comment: str) -> Source | None:
    """The place that a location names, or None for another comment."""
    match = _LOCATION.match(comment)
    return Source(file=match[1], line=int(match[2]), column=int(match[3] or 0)) if match else None


def explained(notes: Notes, tokens: TokenTable) -> Notes:
    """The notes of a program that was compiled with tokens, with its author's place and names in them.

    What the comments mean is decided before: no name of an author's can look like a comment of the compiler's.
    Code that a library made for the author, such as the copies of ``emit_pipeline``, has the place of the call.
    """
    operation = notes.source.line if notes.source else -1
    place = tokens.nearest(operation)
    source = Source(file=place[0], line=place[1], column=place[2], operation=operation) if place else None
    return replace(notes, source=source, text=tokens.explain(notes.text))
