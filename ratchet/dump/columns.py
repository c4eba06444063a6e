"""The instructions of a listing as columns of numbers. Pure.

A listing may have hundreds of thousands of instructions. What is asked of each is asked of whole columns here, and an
instruction itself is looked at only where there are few of its kind, or where it is named.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import chain, count, repeat

import numpy as np

from ratchet.chips.units import is_vector_code
from ratchet.dump.instruction import Bundle, Form, Instruction, Notes


class Columns:
    """Instructions by number, in the order of the listing; values by the number of the last one that makes them."""

    def __init__(self, bundles: Sequence[Bundle]) -> None:
        self.instructions: list[Instruction] = list(chain.from_iterable(bundles))
        size = len(self.instructions)
        lengths = _array(map(len, bundles), len(bundles))
        self.first = _before(lengths)
        """Per bundle, its first instruction; behind the last bundle, how many there are."""
        self.bundle = np.repeat(np.arange(len(bundles)), lengths)
        """Per instruction, the address of its bundle."""
        fields = zip(*self.instructions, strict=True) if size else repeat(())
        opcodes, makes, _, reads, _, forms, notes = (next(fields) for _ in range(7))
        self.opcode, self.opcodes = numbered(opcodes)
        """Per instruction, the number of its opcode among all of them, in the order of their first use."""
        self.form, self.forms = _same(forms)
        self.notes, self.every_notes = _same(notes)
        self.is_vector = self.of_opcodes(map(is_vector_code, self.opcodes)).astype(bool)
        self.makers: dict[str, int] = dict(zip(makes, range(size), strict=True))
        """The last instruction that makes a value, by its name."""
        self.makes = _array(map(self.makers.__getitem__, makes), size)
        """Per instruction, the value that it makes."""
        read = _array(map(len, reads), size)
        self.first_read = _before(read)
        """Per instruction, where what it reads begins in ``reads``; behind the last one, how many there are."""
        self.reader = np.repeat(np.arange(size), read)
        values = chain.from_iterable(reads)
        self.reads = _array(map(self.makers.get, values, repeat(-1)), len(self.reader))
        """All values that are read, instruction by instruction; -1 for what nothing in the listing makes."""

    def of_opcodes(self, values: Iterable[int]) -> np.ndarray:
        """Per instruction, that of ``values``, one for each of ``opcodes``, which is its opcode's."""
        return _array(values, len(self.opcodes))[self.opcode]

    def with_opcode(self, is_wanted: Callable[[str], bool]) -> list[int]:
        """The instructions whose opcode is wanted."""
        return np.flatnonzero(self.of_opcodes(map(is_wanted, self.opcodes))).tolist()

    def with_form(self, is_wanted: Callable[[Form], bool]) -> list[int]:
        """The instructions whose form is wanted."""
        return np.flatnonzero(_array(map(is_wanted, self.forms), len(self.forms))[self.form]).tolist()

    @cached_property
    def branches(self) -> dict[int, int]:
        """Instructions that go somewhere, and the bundle they go to."""
        branches = self.with_form(lambda form: form.target is not None)
        return {number: target for number in branches if (target := self.instructions[number].form.target) is not None}

    def moved(self, to: np.ndarray) -> Columns:
        """With each bundle, and what goes there, at ``to[address]``; ``to[-1]``: how many bundles there are then."""
        changed = copy(self)
        changed.bundle = to[self.bundle]
        changed.first = _before(np.bincount(changed.bundle, minlength=int(to[-1])))
        changed.branches = {number: int(to[target]) for number, target in self.branches.items()}
        changed.instructions, changed.form, changed.forms = [*self.instructions], self.form.copy(), [*self.forms]
        for number, target in changed.branches.items():
            form = replace(self.instructions[number].form, target=target)
            changed.instructions[number] = self.instructions[number]._replace(form=form)
            changed.form[number] = len(changed.forms)
            changed.forms.append(form)
        return changed

    def of_bundle(self, address: int) -> range:
        """The instructions of a bundle."""
        return range(int(self.first[address]), int(self.first[address + 1]))


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
