"""Where each instruction and each wait of a listing belongs. Pure.

The compiler writes a location behind most vector instructions. Those without one (spills, selects, transcendentals) get
the line of what they serve: a store that of the instruction whose value it stores, anything else that of the first
instruction that reads its result, or else that of the one that made its operands. Scalar code without a location is
the pipeline that the compiler puts around a kernel body. A wait of that pipeline belongs to the windows that it is for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ratchet.tpu.dump.columns import Columns, numbered
from ratchet.tpu.dump.instruction import Address, Register, Source, Value
from ratchet.tpu.dump.listing import Listing
from ratchet.values.place import Code, Place, SourceLine, Window, Windows

_NOWHERE = -1
_ADDRESS_STEPS = 7
"""Through how many instructions an address is followed back to the allocation that it is in."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """The place of every instruction."""

    known: list[Place]
    number: np.ndarray
    """Per instruction, which of them."""

    def of(self, instruction: int) -> Place:
        """The place of an instruction, by its number in the columns."""
        return self.known[self.number[instruction]]


def line_of(source: Source) -> SourceLine:
    """The line that an annotation names. Folders are left out of the file's name."""
    return SourceLine(file=source.file.replace("\\", "/").rpartition("/")[2], line=source.line)


def places(columns: Columns, elsewhere: Place | None = None) -> Places:
    """The place of every instruction. With ``elsewhere`` everything is there: an op of XLA's."""
    if elsewhere is not None:
        return Places(known=[elsewhere], number=np.zeros(len(columns), np.int64))
    named = [line_of(notes.source) if notes.source else None for notes in columns.every_notes]
    number_of, lines = numbered(list(filter(None, named)))
    of_notes = np.full(len(named), _NOWHERE)
    of_notes[[line is not None for line in named]] = number_of
    number = of_notes[columns.notes]
    lost = np.flatnonzero((number == _NOWHERE) & columns.is_vector)
    if len(lost):
        number = _from_readers(columns, number, lost)
        _from_makers(columns, number, lost)
    nowhere = number == _NOWHERE
    number[nowhere] = len(lines) + columns.is_vector[nowhere]
    return Places(known=[*lines, Code.PIPELINE, Code.VECTOR], number=number)


def _from_readers(columns: Columns, number: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """Backwards, so that a chain of instructions without a line gets that of its end; the first reader wins."""
    wanted = np.zeros(len(number), bool)  # by value
    wanted[columns.makes[lost]] = True
    reads = np.flatnonzero((columns.reads >= 0) & wanted[columns.reads])
    concerned = np.zeros(len(number), bool)
    concerned[columns.reader[reads]] = True
    concerned |= (number == _NOWHERE) & wanted[columns.makes]
    # Bundle by bundle from the last one, within a bundle from the first instruction.
    order = np.flatnonzero(concerned)
    order = order[np.argsort(-columns.bundle[order], kind="stable")].tolist()
    readers = columns.reader[reads]
    begins, ends = (np.searchsorted(readers, order, side).tolist() for side in ("left", "right"))
    values, makes, found = columns.reads[reads].tolist(), columns.makes.tolist(), number.tolist()
    of_reader: dict[int, int] = {}
    for instruction, begin, end in zip(order, begins, ends, strict=True):
        place = found[instruction]
        if place == _NOWHERE:
            place = found[instruction] = of_reader.get(makes[instruction], _NOWHERE)
        if place != _NOWHERE:
            for value in values[begin:end]:
                of_reader[value] = place
    return np.array(found)


def _from_makers(columns: Columns, number: np.ndarray, lost: np.ndarray) -> None:
    """Forwards: stores, and results that nobody with a line reads. Changes ``number``."""
    last = dict(zip(columns.makes[lost].tolist(), lost.tolist(), strict=True))  # of several makers, the last one
    for instruction in sorted(last.values()):
        if number[instruction] != _NOWHERE:
            continue
        begin, end = columns.first_read[instruction], columns.first_read[instruction + 1]
        makers, names = columns.reads[begin:end], columns.instruction(instruction).reads
        for maker, name in zip(makers[::-1], names[::-1], strict=True):  # the stored value comes last
            if maker >= 0 and number[maker] != _NOWHERE and name[0] != "s":
                number[instruction] = number[maker]
                break


def places_of_waits(listing: Listing, places: Places) -> dict[int, Place]:
    """By bundle: the line of a wait, else the windows whose copies signal its flag, else the compiler's pipeline."""
    columns = listing.columns
    by_flag: dict[str, set[Window]] = {}
    for number in columns.with_opcode(lambda opcode: opcode.startswith("dma.")):
        instruction = columns.instruction(number)
        flag = _allocation(columns, instruction.named("dst_syncflagno"))
        buffer = listing.allocations.get(_allocation(columns, instruction.named("vmem")))
        if flag and buffer is not None and buffer.window is not None:
            by_flag.setdefault(flag, set()).add(buffer.window)
    found: dict[int, Place] = {}
    for number in columns.with_opcode(lambda opcode: opcode.startswith(("dma.done.wait", "vwait"))):
        place = places.of(number)
        if not isinstance(place, SourceLine):
            flag = _allocation(columns, columns.instruction(number).operands[0].value)
            place = Windows(windows=tuple(sorted(by_flag[flag]))) if flag in by_flag else place
        found.setdefault(int(columns.bundle[number]), place)
    return found


def _allocation(columns: Columns, operand: Value | None) -> str:
    """The allocation that an address is made from, or ``""``."""
    if isinstance(operand, Address):
        if operand.allocation:
            return operand.allocation
        operand = operand.registers[0] if operand.registers else None
    value = operand.name if isinstance(operand, Register) else ""
    for _ in range(_ADDRESS_STEPS):
        maker = columns.maker(value) if value.startswith("s") else None
        if maker is None:
            break
        if maker.form.allocations:
            return maker.form.allocations[0]
        value = next((read for read in maker.reads if read[0] == "s"), "")
    return ""
