"""Which source line each instruction of a listing belongs to. Pure.

The compiler writes a location behind most vector instructions. Those without one (spills, selects, transcendentals) get
the line of what they serve: a store that of the instruction whose value it stores, anything else that of the first
instruction that reads its result, or else that of the one that made its operands. Scalar code without a location is
the pipeline that the compiler puts around a kernel body.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ratchet.tpu.dump.columns import Columns, numbered
from ratchet.tpu.dump.instruction import Source
from ratchet.values.place import Code, Place, SourceLine

_NOWHERE = -1


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
