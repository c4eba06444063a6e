"""The DMAs that a kernel issued in its first run, each end as an operand and a byte of it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import takewhile

import numpy as np

from ratchet.tpu.dump.hlo import HloModule
from ratchet.tpu.machine.dma import GRANULE_BYTES
from ratchet.tpu.machine.memory import GRANULES_PER_ADDRESS
from ratchet.tpu.machine.programs import Programs, Unit
from ratchet.values.copies import COLUMNS, MOST_BLOCKS, IssuedCopies, packed

_MEMORIES = {"hbm": 0, "vmem": 1, "smem": 2}
_FIELDS = 6
_OWN, _NEITHER = -1, -2
"""What is no operand: memory of the kernel's own, or an address outside of all operands."""

_Range = tuple[int, int, int, int]
"""Memory, first granule, number of granules, and what is there."""


class CopyLog:
    """Fills up while a kernel runs."""

    def __init__(self, launch: str, unit: Unit, arguments: tuple[object, ...], cores: int) -> None:
        self._launch, self._unit, self._arguments, self._cores = launch, unit, arguments, cores
        self._numbers = array("q")
        self.runs = 0
        self._count = 0

    def add(self, place: int, source: str, start: object, target: str, stop: object, granules: int) -> None:
        """One DMA; addresses of HBM and VMEM in granules, of scalar memory in words."""
        self._count += 1
        if self._count <= MOST_BLOCKS:
            begins = (address if isinstance(address, int) else -1 for address in (start, stop))
            (read, written) = begins
            self._numbers.extend((place, granules, _MEMORIES[source], read, _MEMORIES[target], written))

    def issued(self, programs: Programs) -> IssuedCopies:
        """What was logged, by operand."""
        rows = np.frombuffer(self._numbers, np.int64).reshape(-1, _FIELDS)
        found = np.empty((len(rows), COLUMNS), np.int64)
        found[:, 0], found[:, 1] = rows[:, 0], rows[:, 1] * GRANULE_BYTES
        operands = list(self._operands(programs))
        windows = list(self._windows(programs.hlo))
        for end in (0, 1):
            memory, address = rows[:, 2 + 2 * end], rows[:, 3 + 2 * end]
            operand, first = _found(memory, address, operands)
            window, _ = _found(memory, address, windows)
            own = (operand < 0) & (memory != _MEMORIES["hbm"])
            at = found[:, 2 + 3 * end : 5 + 3 * end]
            at[:, 0] = np.where(own, _OWN, np.where(operand < 0, _NEITHER, operand))
            at[:, 1] = np.where(address < 0, -1, np.where(operand < 0, address, (address - first) * GRANULE_BYTES))
            at[:, 2] = window
        begins = {number: (space, begin) for space, begin, _, number in reversed(operands)}
        first_at = {begin: number for number, begin in begins.items()}
        shared = tuple(first_at.get(begins.get(n, (_NEITHER, n)), n) for n in range(len(self._arguments)))
        return IssuedCopies(
            launch=self._launch,
            runs=self.runs,
            cores=self._cores,
            shared=shared,
            count=self._count,
            copies=packed(found),
        )

    def _operands(self, programs: Programs) -> Iterator[_Range]:
        hlo = programs.hlo
        op = hlo.ops[self._launch]
        types = [hlo.ops[name].types[0] for name in op.operands] + list(op.types)
        for number, (where, type_) in enumerate(zip(self._arguments, types, strict=False)):
            space, _ = self._unit.operands.get(number, ("", ""))
            if isinstance(where, int) and space in ("hbm", "vmem"):
                per_address = (
                    programs.chip.hbm_address_bytes // GRANULE_BYTES if space == "hbm" else GRANULES_PER_ADDRESS
                )
                yield _MEMORIES[space], where * per_address, -(-type_.padded_bytes // GRANULE_BYTES), number

    def _windows(self, hlo: HloModule) -> Iterator[_Range]:
        operands = hlo.ops[self._launch].operands
        inputs, scalars = len(operands), (hlo.ops[name].types[0].shape == () for name in operands)
        # Bounds of the grid, which windows do not count. An array of one element is passed by its value, too.
        bounds = sum(takewhile(bool, scalars))
        for allocation in self._unit.translated.listing.allocations.values():
            if allocation.window is None or allocation.space not in ("vmem", "smem"):
                continue
            per_address, unit = (GRANULES_PER_ADDRESS, GRANULE_BYTES) if allocation.space == "vmem" else (1, 4)
            number = allocation.window.number + (inputs if allocation.window.kind == "output" else bounds)
            first = self._unit.addresses[allocation.name] * per_address
            yield _MEMORIES[allocation.space], first, -(-allocation.size_bytes // unit), number


def _found(memory: np.ndarray, address: np.ndarray, ranges: list[_Range]) -> tuple[np.ndarray, np.ndarray]:
    """What is at each address, -1 for nothing, and where that begins. The first of several counts."""
    number, first = np.full(len(address), -1), np.zeros(len(address), np.int64)
    for space, begin, size, what in reversed(ranges):
        here = (memory == space) & (address >= begin) & (address < begin + size)
        number[here], first[here] = what, begin
    return number, first
