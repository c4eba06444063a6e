"""What XLA's own code takes out of tables that memory holds: results of its dynamic slices, alone or in a fusion.

A loop of XLA slices a table with vector code, which the machine does not execute, and then steers by the element. What
the compiled HLO says of such an instruction is what its code does; all else of it stays unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ratchet.tpu import scalar
from ratchet.tpu.dump.hlo import HloModule, HloOp
from ratchet.tpu.dump.layout import byte_of, lay_out
from ratchet.tpu.machine.memory import WORDS_PER_GRANULE, Memory
from ratchet.tpu.machine.words import Unknown, lifted

MOST_ELEMENTS = 128
"""Of one result; larger ones are tables themselves, which nothing steers by."""

_SLICES = ("slice", "dynamic-slice")
_ELEMENTWISE: dict[str, Callable[..., object]] = {
    "add": lifted(scalar.add),
    "subtract": lifted(scalar.subtract),
    "multiply": lifted(scalar.multiply),
}

Argument = tuple[str, object]
"""Of a call, what it is passed: the memory and the address there, or ``""`` and the value."""
Values = dict[tuple[int, ...], object]
"""Elements by index."""


class Result(NamedTuple):
    """Words that an instruction leaves in memory."""

    space: str
    address: object
    words: list[object]


def results(hlo: HloModule, name: str, arguments: Sequence[Argument], memory: Memory) -> list[Result]:
    """What an instruction, of no kernel, will leave of known words; read before it runs.

    ``arguments`` are its operands, and its results behind them.
    """
    op = hlo.ops.get(name)
    if op is None or op.opcode not in (*_SLICES, "fusion"):
        return []
    made = hlo.by_computation.get(op.called[0], ()) if op.called else (op,)
    if len(arguments) != len(op.operands) + len(op.types) or not any(one.opcode in _SLICES for one in made):
        return []
    root = next(one for one in made if one.is_root) if op.called else op
    leaves = hlo.operands(root) if root.opcode == "tuple" else [root]
    inner = {one.name: arguments[one.parameter] for one in made if one.parameter is not None}
    slicing = _Slicing(hlo, memory, inner if op.called else dict(zip(op.operands, arguments, strict=False)))
    found = []
    for leaf, (space, address) in zip(leaves, arguments[len(op.operands) :], strict=True):
        values = slicing.values(leaf) if _is_small(leaf) else None
        if values is not None and space:
            found.append(Result(space, address, _laid_out(leaf, values)))
    return found


def _is_small(op: HloOp) -> bool:
    return len(op.types) == 1 and op.types[0].dtype in ("s32", "u32") and math.prod(op.types[0].shape) <= MOST_ELEMENTS


class _Slicing:
    def __init__(self, hlo: HloModule, memory: Memory, given: Mapping[str, Argument]) -> None:
        """``given``: what is passed, by the name of the instruction that stands for it."""
        self._hlo = hlo
        self._memory = memory
        self._given = given

    def values(self, op: HloOp) -> Values | None:
        """Every element of what ``op`` makes; None where it is no slice, or of another kind of elements."""
        if not _is_small(op):
            return None
        if op.name in self._given:
            return {index: self._element(op, index) for index in np.ndindex(op.types[0].shape)}
        operands = self._hlo.operands(op)
        if op.opcode in _SLICES:
            return self._slice(op, operands)
        if op.opcode == "constant" and op.literal is not None:
            return {index: int(np.int32(op.literal[index])) for index in np.ndindex(op.types[0].shape)}
        parts = [self.values(operand) for operand in operands]
        if op.opcode in ("bitcast", "reshape") and parts[0] is not None and len(parts[0]) == 1:
            return {(0,) * len(op.types[0].shape): next(iter(parts[0].values()))}
        if op.opcode not in _ELEMENTWISE or any(part is None for part in parts):
            return None
        return {index: _ELEMENTWISE[op.opcode](*(part[index] for part in parts if part)) for index in parts[0] or ()}

    def _slice(self, op: HloOp, operands: list[HloOp]) -> Values | None:
        table, *starts = operands
        if table.name not in self._given or table.types[0].item_bits != op.types[0].item_bits:
            return None
        steps = list(op.cut) or self._starts(op, table, starts)
        if steps is None:
            return None
        shape = op.types[0].shape
        return {
            index: self._element(table, tuple(a + i * step for i, (a, step) in zip(index, steps, strict=True)))
            for index in np.ndindex(shape)
        }

    def _starts(self, op: HloOp, table: HloOp, starts: Sequence[HloOp]) -> list[tuple[int, int]] | None:
        """Of a dynamic slice the first index of each dimension, which XLA keeps inside the table, and the stride."""
        at: list[tuple[int, int]] = []
        for start, size, length in zip(starts, op.types[0].shape, table.types[0].shape, strict=True):
            word = next(iter((self.values(start) or {}).values()), None)
            if not isinstance(word, int):
                return None
            first = word if start.types[0].dtype == "s32" else scalar.unsigned(word)
            at.append((min(max(first, 0), length - size), 1))
        return at

    def _element(self, op: HloOp, index: tuple[int, ...]) -> object:
        """One element of an operand."""
        space, where = self._given[op.name]
        if not space:
            return where
        byte = int(byte_of([np.array([i]) for i in index], op.types[0])[0])
        if not isinstance(where, int):
            return where
        granule, word = divmod(byte // 4, WORDS_PER_GRANULE)
        if space == "smem":
            return self._memory.smem.get(where + byte // 4, Unknown("scalar memory"))
        words = self._memory.read(space, self._memory.granule(space, where) + granule, 1)
        return Unknown(f"{space} contents that a slice of XLA's reads") if words is None else words[word]


def _laid_out(op: HloOp, values: Values) -> list[object]:
    """A result as it lies in memory; what is no element of it is not known."""
    array = op.types[0]
    words: list[object] = [Unknown("padding")] * len(lay_out(np.zeros(array.shape, np.int32), array))
    for index, word in values.items():
        words[int(byte_of([np.array([i]) for i in index], array)[0]) // 4] = word
    return words
