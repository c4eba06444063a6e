"""The instructions of a listing as columns of numbers. Pure.

A listing may have hundreds of thousands of instructions. What is asked of each is asked of whole columns here, and an
instruction itself is looked at only where there are few of its kind, or where it is named.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count
from operator import eq
from typing import overload

import numpy as np

from ratchet.tpu.chips.units import is_vector_code
from ratchet.tpu.dump.instruction import Bundle, Form, Instruction, Notes


@dataclass(frozen=True, kw_only=True)
class Flat:
    """Instructions one behind the other, as a listing has them."""

    lengths: Sequence[int]
    """Instructions of each bundle."""
    kinds: Sequence[int]
    """Per instruction, which of ``known``."""
    known: Sequence[tuple[str, Form, int]]
    """Opcode, form, and how many values are named: the one that is made, and those that are read."""
    marks: Sequence[int]
    """Per instruction, which of ``notes``."""
    notes: Sequence[Notes]
    values: Sequence[str]
    """For each instruction the value that it makes, then those that it reads."""
    registers: Sequence[str | None]
    """Of each of the values."""


def flat(bundles: Sequence[Bundle]) -> Flat:
    """Instructions that are there already."""
    every = list(chain.from_iterable(bundles))
    return Flat(
        lengths=list(map(len, bundles)),
        kinds=range(len(every)),
        known=[(one.opcode, one.form, 1 + len(one.reads)) for one in every],
        marks=range(len(every)),
        notes=[one.notes for one in every],
        values=list(chain.from_iterable([(one.makes, *one.reads) for one in every])),
        registers=list(chain.from_iterable([(one.register, *one.registers) for one in every])),
    )


class Columns:
    """Instructions by number, in the order of the listing; values by the number of the last one that makes them."""

    def __init__(self, read: Flat) -> None:
        size = len(read.kinds)
        lengths = _array(read.lengths, len(read.lengths))
        self.first = _before(lengths)
        """Per bundle, its first instruction; behind the last bundle, how many there are."""
        self.bundle = np.repeat(np.arange(len(lengths)), lengths)
        """Per instruction, the address of its bundle."""
        opcodes, forms, named = zip(*read.known, strict=True) if read.known else ((), (), ())
        kind = _array(read.kinds, size)
        numbers, self.opcodes = numbered(opcodes)
        self.opcode = numbers[kind]
        """Per instruction, the number of its opcode among all of them, in the order of their first use."""
        numbers, self.forms = _same(forms)
        self.form = numbers[kind]
        numbers, self.every_notes = _same(read.notes)
        self.notes = numbers[_array(read.marks, size)]
        self.is_vector = self.of_opcodes(map(is_vector_code, self.opcodes)).astype(bool)
        self._values, self._registers = read.values, read.registers
        counts = _array(named, len(named))[kind]
        self._begin = _before(counts)
        """Per instruction, where its values begin; behind the last one, how many there are."""
        self._name = {value: number for number, value in enumerate(dict.fromkeys(read.values))}
        name = _array(map(self._name.__getitem__, read.values), len(read.values))
        makes = name[self._begin[:-1]]
        self._maker = np.full(len(self._name), -1)
        self._maker[makes] = np.arange(size)
        self.makes = self._maker[makes]
        """Per instruction, the value that it makes."""
        self.first_read = _before(counts - 1)
        """Per instruction, where what it reads begins in ``reads``; behind the last one, how many there are."""
        self.reader = np.repeat(np.arange(size), counts - 1)
        is_read = np.ones(len(name), bool)
        is_read[self._begin[:-1]] = False
        self.reads = self._maker[name[is_read]]
        """All values that are read, instruction by instruction; -1 for what nothing in the listing makes."""

    def __len__(self) -> int:
        return len(self.opcode)

    def instruction(self, number: int) -> Instruction:
        """One of them."""
        begin, end = self._begin[number], self._begin[number + 1]
        return Instruction(
            opcode=self.opcodes[self.opcode[number]],
            makes=self._values[begin],
            register=self._registers[begin] or "",
            reads=tuple(self._values[begin + 1 : end]),
            registers=tuple(self._registers[begin + 1 : end]),
            form=self.forms[self.form[number]],
            notes=self.every_notes[self.notes[number]],
        )

    def maker(self, value: str) -> Instruction | None:
        """The last instruction that makes a value."""
        number = self._maker[self._name[value]] if value in self._name else -1
        return self.instruction(number) if number >= 0 else None

    @property
    def bundles(self) -> Bundles:
        """The same instructions, bundle by bundle."""
        return Bundles(self)

    def of_opcodes(self, values: Iterable[int]) -> np.ndarray:
        """Per instruction, that of ``values``, one for each of ``opcodes``, which is its opcode's."""
        return _array(values, len(self.opcodes))[self.opcode]

    def with_opcode(self, is_wanted: Callable[[str], bool]) -> list[int]:
        """The instructions whose opcode is wanted."""
        return np.flatnonzero(self.of_opcodes(map(is_wanted, self.opcodes))).tolist()

    def with_form(self, is_wanted: Callable[[Form], bool]) -> list[int]:
        """The instructions whose form is wanted."""
        return np.flatnonzero(_array(map(is_wanted, self.forms), len(self.forms))[self.form]).tolist()

    def with_notes(self, is_wanted: Callable[[Notes], bool]) -> list[int]:
        """The instructions whose notes are wanted."""
        wanted = _array(map(is_wanted, self.every_notes), len(self.every_notes))
        return np.flatnonzero(wanted[self.notes]).tolist()

    def addresses(self, numbers: Sequence[int]) -> set[int]:
        """The bundles in which instructions are."""
        return set(self.bundle[numbers].tolist()) if numbers else set()

    @cached_property
    def branches(self) -> dict[int, int]:
        """Instructions that go somewhere, and the bundle they go to."""
        targets = [form.target for form in self.forms]
        branches = self.with_form(lambda form: form.target is not None)
        return {number: target for number in branches if (target := targets[self.form[number]]) is not None}

    def moved(self, to: np.ndarray) -> Columns:
        """With each bundle, and what goes there, at ``to[address]``; ``to[-1]``: how many bundles there are then."""
        changed = copy(self)
        changed.bundle = to[self.bundle]
        changed.first = _before(np.bincount(changed.bundle, minlength=int(to[-1])))
        changed.branches = {number: int(to[target]) for number, target in self.branches.items()}
        changed.form, changed.forms = self.form.copy(), [*self.forms]
        for number, target in changed.branches.items():
            changed.form[number] = len(changed.forms)
            changed.forms.append(replace(self.forms[self.form[number]], target=target))
        return changed

    def of_bundle(self, address: int) -> range:
        """The instructions of a bundle."""
        return range(int(self.first[address]), int(self.first[address + 1]))


class Bundles(Sequence[Bundle]):
    """The bundles of columns; an instruction is made when it is looked at."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns.first) - 1

    @overload
    def __getitem__(self, address: int) -> Bundle: ...
    @overload
    def __getitem__(self, address: slice) -> list[Bundle]: ...
    def __getitem__(self, address: int | slice) -> Bundle | list[Bundle]:
        where = range(len(self))[address]
        if isinstance(where, range):
            return [self[one] for one in where]
        return tuple([self.columns.instruction(number) for number in self.columns.of_bundle(where)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]


def ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """``starts[0]`` and so many numbers from it on as ``sizes[0]`` says, then those of the next, and so on."""
    return np.repeat(starts - _before(sizes)[:-1], sizes) + np.arange(int(sizes.sum()))


def numbered(items: Sequence[Hashable]) -> tuple[np.ndarray, list]:
    """Items as numbers of distinct ones, and those in the order in which they come first."""
    distinct = dict.fromkeys(items)
    numbers = dict(zip(distinct, count(), strict=False))
    return _array(map(numbers.__getitem__, items), len(items)), list(distinct)


def _same(items: Sequence[Form] | Sequence[Notes]) -> tuple[np.ndarray, list]:
    """As ``numbered``, of objects that are shared, by which they are: equal ones may come twice."""
    identities = list(map(id, items))
    numbers, _ = numbered(identities)
    return numbers, list(dict(zip(identities, items, strict=True)).values())


def _before(sizes: np.ndarray) -> np.ndarray:
    """Sums of all that come before, that of all of them last."""
    return np.concatenate(([0], np.cumsum(sizes)))


def _array(values: Iterable[int], size: int) -> np.ndarray:
    return np.fromiter(values, np.int64, size)
