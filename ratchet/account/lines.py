"""Which source line each instruction of a listing belongs to. Pure.

The compiler writes a location behind most vector instructions. Those without one (spills, selects, transcendentals) get
the line of what they serve: a store that of the instruction whose value it stores, anything else that of the first
instruction that reads its result, or else that of the one that made its operands. Scalar code without a location is
the pipeline that the compiler puts around a kernel body.
"""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.chips.units import is_vector_code
from ratchet.dump.instruction import Source
from ratchet.dump.listing import Bundle
from ratchet.values.place import Code, Place, SourceLine

Where = tuple[int, int]
"""Bundle and place in the bundle of an instruction."""


def line_of(source: Source) -> SourceLine:
    """The line that an annotation names. Folders are left out of the file's name."""
    return SourceLine(file=source.file.replace("\\", "/").rpartition("/")[2], line=source.line)


def places(bundles: Sequence[Bundle], elsewhere: Place | None = None) -> list[list[Place]]:
    """The place of every instruction, bundle by bundle. With ``elsewhere`` everything is there: an op of XLA's."""
    if elsewhere is not None:
        return [[elsewhere] * len(bundle) for bundle in bundles]
    line_at: dict[Source | None, SourceLine | None] = {None: None}
    rows: list[list[Place | None]] = []
    lost: dict[str, Where] = {}
    for address, bundle in enumerate(bundles):
        row: list[Place | None] = []
        for number, instruction in enumerate(bundle):
            source = instruction.notes.source
            if source is not None and source not in line_at:
                line_at[source] = line_of(source)
            place = line_at[source]
            row.append(place)
            if place is None and is_vector_code(instruction.opcode):
                lost[instruction.makes] = (address, number)
        rows.append(row)
    if lost:
        _from_readers(bundles, rows, lost)
        _from_makers(bundles, rows, lost)
    default = Code.PIPELINE, Code.VECTOR
    return [
        [place or default[is_vector_code(instruction.opcode)] for place, instruction in zip(row, bundle, strict=True)]
        for row, bundle in zip(rows, bundles, strict=True)
    ]


def _from_readers(
    bundles: Sequence[Bundle],
    rows: list[list[Place | None]],
    lost: dict[str, Where],
) -> None:
    """Backwards, so that a chain of instructions without a line gets that of its end; the first reader wins."""
    reader: dict[str, Place] = {}
    for address in range(len(bundles) - 1, -1, -1):
        row = rows[address]
        for number, instruction in enumerate(bundles[address]):
            place = row[number]
            if place is None:
                value = instruction.makes
                if value in reader and value in lost:
                    place = row[number] = reader[value]
            if isinstance(place, SourceLine):
                for value in instruction.reads:
                    if value in lost:
                        reader[value] = place


def _from_makers(
    bundles: Sequence[Bundle],
    rows: list[list[Place | None]],
    lost: dict[str, Where],
) -> None:
    """Forwards: stores, and results that nobody with a line reads."""
    rest = sorted(where for where in lost.values() if rows[where[0]][where[1]] is None)
    wanted = {value for address, number in rest for value in bundles[address][number].reads}
    made = {
        value: (address, number)
        for address, bundle in enumerate(bundles)
        for number, instruction in enumerate(bundle)
        if (value := instruction.makes) in wanted
    }
    for address, number in rest:
        for value in reversed(bundles[address][number].reads):  # the stored value comes last
            where = made.get(value)
            place = rows[where[0]][where[1]] if where else None
            if place is not None and value[0] != "s":
                rows[address][number] = place
                break
