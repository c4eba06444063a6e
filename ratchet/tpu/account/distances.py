"""How many cycles lie between the instructions of a listing that may wait for each other. Pure.

An instruction may wait for those that made what it reads, for the last one that was given to its unit, and, where it
takes a result from a matrix unit, for the product that it is the result of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ratchet.tpu.chips.units import named_unit
from ratchet.tpu.dump.columns import Columns, numbered, ranges


class Executed:
    """The instructions in the order of the basic blocks, which share bundles: delay slots are also where others go."""

    def __init__(self, columns: Columns, blocks: Sequence[tuple[int, int]]) -> None:
        first, last = np.array(blocks, np.int64).reshape(-1, 2).T
        sizes = columns.first[last] - columns.first[first]
        self.instruction = ranges(columns.first[first], sizes)
        """Number of each in the columns."""
        self.address = columns.bundle[self.instruction]
        self.block = np.repeat(np.arange(len(blocks)), sizes)
        begins = np.cumsum(sizes) - sizes
        self.block_begin = begins[self.block]
        """Place, in this order, of the first one of the same block."""
        self.bundle_begin = np.arange(len(self.block)) - (self.instruction - columns.first[self.address])
        """The same for the bundle: those before it issued earlier."""


Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]
"""A kind of pair, the place of the earlier instruction in the order of execution, and that of the later one."""


def distances(columns: Columns, executed: Executed) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All distances within a block: the kind of the pair, cycles, and the two places in the order of execution."""
    kinds, names = numbered([_kind(opcode) for opcode in columns.opcodes])
    kind = kinds[columns.opcode][executed.instruction]
    size = len(names)
    values = [(kind[earlier] * size + kind[later], earlier, later) for earlier, later in [_made(columns, executed)]]
    turns = [
        (size * size + kind[earlier] * size + kind[later], earlier, later)
        for earlier, later in _issued(columns, executed)
    ]
    # All products are alike here: their kinds differ in what they do to weights, not in how long they take.
    results = [(2 * size * size + kind[later], earlier, later) for earlier, later in _products(columns, executed)]
    pair, before, behind = (np.concatenate(column) for column in zip(*values, *turns, *results, strict=True))
    return pair, executed.address[behind] - executed.address[before], before, behind


def _kind(opcode: str) -> str:
    """An opcode without the number of its unit: those of a kind take the same time on all units."""
    unit = named_unit(opcode)
    return opcode.replace(unit, unit[:-1]) if unit else opcode


def _made(columns: Columns, executed: Executed) -> tuple[np.ndarray, np.ndarray]:
    """Where what an instruction reads was made last, in an earlier bundle of its block: the maker and the reader."""
    size = len(executed.instruction)
    begins = columns.first_read[executed.instruction]
    counts = columns.first_read[executed.instruction + 1] - begins
    value = columns.reads[ranges(begins, counts)]
    reader = np.repeat(np.arange(size), counts)
    value, reader = value[value >= 0], reader[value >= 0]
    # Makers by value and place. The last of a value's before the reader's bundle is in front of where that would be.
    makers = np.sort(columns.makes[executed.instruction] * size + np.arange(size))
    at = np.searchsorted(makers, value * size + executed.bundle_begin[reader]) - 1
    maker = makers[at] - value * size
    found = (at >= 0) & (maker >= executed.block_begin[reader])
    return maker[found], reader[found]


def _issued(columns: Columns, executed: Executed) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """What was given to a unit last, in an earlier bundle of the block: the earlier and the later instruction.

    Weights are pushed beside the products, by a port of their own, and wait for both.
    """
    units = [named_unit(opcode) if not opcode.startswith("vpop") else "" for opcode in columns.opcodes]
    ports_of = [(unit, opcode.startswith("vmatpush")) for unit, opcode in zip(units, columns.opcodes, strict=True)]
    for unit in filter(None, dict.fromkeys(units)):
        ports = [_where(columns, executed, [port == (unit, own) for port in ports_of]) for own in (False, True)]
        later = np.concatenate(ports)
        for port in filter(len, ports):
            at = np.searchsorted(port, executed.bundle_begin[later]) - 1
            earlier = port[at]
            found = (at >= 0) & (earlier >= executed.block_begin[later])
            yield earlier[found], later[found]


def _products(columns: Columns, executed: Executed) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Products of a matrix unit and the instructions that take their results, which leave it in the order of issue."""
    units = [unit if (unit := named_unit(opcode)).startswith("mxu") else "" for opcode in columns.opcodes]
    reads_nothing = np.diff(columns.first_read)[executed.instruction] == 0
    blocks = int(executed.block[-1]) + 1 if len(executed.block) else 0
    for unit in filter(None, dict.fromkeys(units)):
        products, results = (
            _where(
                columns,
                executed,
                [one == unit and opcode.startswith(head) for one, opcode in zip(units, columns.opcodes, strict=True)],
            )
            for head in ("vmatmul", "vpop")
        )
        results = results[reads_nothing[results]]
        pushed, popped = (np.bincount(executed.block[own], minlength=blocks) for own in (products, results))
        each = popped // np.maximum(1, pushed)
        # Else a product and its results are in different blocks.
        whole = (pushed > 0) & (each > 0) & (each * pushed == popped)
        block = executed.block[results]
        number = np.arange(len(results)) - (np.cumsum(popped) - popped)[block]
        kept = whole[block]
        block, number, later = block[kept], number[kept], results[kept]
        yield products[(np.cumsum(pushed) - pushed)[block] + number // each[block]], later


def _where(columns: Columns, executed: Executed, opcodes: Sequence[bool]) -> np.ndarray:
    """Places of the instructions whose opcode is one of those chosen."""
    return np.flatnonzero(columns.of_opcodes(opcodes)[executed.instruction])
