"""The SparseCores as the program of a TensorCore sees them: it hands them descriptors, starts them, waits for them.

The protocol (libtpu 0.0.42.1, tpu7x and v5p): the TensorCore copies a descriptor into a queue in HBM. It adds 1 to the
go flag of each SparseCore, which then runs the program of its next descriptor and adds 1 to its completion flag on the
TensorCore. The descriptor of an operation of the HLO is copied with a flag that the operation waits for; those of
start-up and of the end are copied with a flag of the TensorCore's own and announced on the flag ``AVAILABLE``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

from ratchet.tpu.chips import Chip
from ratchet.tpu.dump.hlo import HloModule
from ratchet.tpu.machine.dma import DmaEngine, GeneralDma
from ratchet.tpu.machine.elsewhere import PREPARE, PREPARED, moves, received
from ratchet.tpu.machine.words import NotExecutable

AVAILABLE = 7163
"""Flag of a SparseCore that says that a descriptor is in its queue."""
HEAD = 7162
"""Flag of a SparseCore that says how far its queue has been read; only reset here."""

_UNIT = 14
_FLAG = (1 << _UNIT) - 1
_FIRST_UNIT = 4
"""Of a signal's word, the bits from 14 on: 2 and 3 are TensorCores, 4 and above the SparseCores."""
_UNITS = 7

_DUMMY = 0
"""A flag that nobody waits for."""


class _Handing(NamedTuple):
    """The operation whose descriptors are being handed over from one bundle, one to each SparseCore in it."""

    op: str
    address: int
    cores: set[int]


class SparseCoreUnits:
    """The SparseCores of one device during one run."""

    def __init__(self, chip: Chip, hlo: HloModule, engine: DmaEngine, done_flags: Mapping[int, int]) -> None:
        """``done_flags``: per SparseCore, the TensorCore's flag that says that a program is over."""
        self._chip = chip
        self._hlo = hlo
        self._engine = engine
        self._queues: dict[int, deque[str]] = {}
        """Per SparseCore, the operations whose descriptors wait; ``""`` for start-up and end."""
        ops = hlo.by_computation.get(hlo.entry, ())
        self._prepared = iter([op.name.removeprefix(PREPARED) for op in ops if op.target == PREPARE])
        """Operations that the SparseCores run, in the order in which they are prepared."""
        self._handing = _Handing("", -1, set())
        self.exchanges = False
        """Whether they exchanged anything with other chips."""
        self._done_flags = done_flags

    @staticmethod
    def named(word: int) -> bool:
        """Whether a signal's word names a SparseCore of this chip."""
        return word >> _UNIT + 3 == 0 and (word >> _UNIT & _UNITS) >= _FIRST_UNIT

    @staticmethod
    def named_by_copy(flag: int) -> bool:
        """Whether the flag of a copy is one of a SparseCore's."""
        return (flag >> _UNIT - 1 & _UNITS) >= _FIRST_UNIT

    def reset(self, word: int, value: int) -> None:
        """A flag of a SparseCore is set. Raises NotExecutable unless it is a known one set to 0."""
        if value or word & _FLAG not in (self._chip.sparse_cores.go_flag, AVAILABLE, HEAD):
            raise NotExecutable(f"flag {word:#x} of a SparseCore set to {value}")

    def hand_over(self, copy: GeneralDma, named: str) -> None:
        """A descriptor is copied into a SparseCore's queue.

        Args:
            copy: its flag has 13 bits of flag, 3 of unit, and above them the flag that counts descriptors handed over;
                its source's flag counts descriptors read.
            named: the operation that the counting flag is named after.

        Raises:
            NotExecutable: for an operation that the HLO does not have.
        """
        core = self._number(copy.flag >> _UNIT - 1)
        queue = self._queues.setdefault(core, deque())
        if copy.address != self._handing.address or core in self._handing.cores:
            self._handing = _Handing(next(self._prepared, named), copy.address, set())
        self._handing.cores.add(core)
        if self._handing.op not in self._hlo.ops:
            raise NotExecutable(f"a descriptor for {self._handing.op!r}, which is no operation of the program")
        if not moves(self._hlo, self._handing.op) and received(self._hlo, self._handing.op) is None:
            raise NotExecutable(f"a descriptor for {self._handing.op!r}, which does more than copy")
        queue.append(self._handing.op)
        done = self._engine.start(copy.now, copy.source, copy.target, copy.granules, _DUMMY)
        for counter in (copy.flag >> 16, copy.source_flag & _FLAG):
            self._engine.later(copy.now, ceil(done) - copy.now, counter, 1)

    def signal(self, now: int, word: int, amount: int) -> None:
        """A flag of a SparseCore is raised. Raises NotExecutable for an unknown one, or one with nothing to start."""
        core, flag = self._number(word >> _UNIT), word & _FLAG
        queue = self._queues.setdefault(core, deque())
        if amount != 1 or flag not in (self._chip.sparse_cores.go_flag, AVAILABLE) or core not in self._done_flags:
            raise NotExecutable(f"a signal of {amount} to flag {flag} of SparseCore {core}")
        if flag == AVAILABLE:
            queue.append("")
            return
        if not queue:
            raise NotExecutable(f"SparseCore {core} is started without a descriptor")
        op = queue.popleft()
        exchanged = received(self._hlo, op) if op and not moves(self._hlo, op) else None
        moved = self._moved(op) if exchanged is None else exchanged
        self.exchanges |= exchanged is not None
        self._engine.offload(now, core, moved, self._done_flags[core], exchanged=exchanged is not None)

    def _number(self, unit: int) -> int:
        """Of a SparseCore among those of its device: a chip counts those of its first device first."""
        return ((unit & _UNITS) - _FIRST_UNIT) % max(1, len(self._done_flags))

    def _moved(self, op: str) -> int:
        """Bytes that an operation of the HLO has as its results; 0 for start-up and end."""
        return sum(array.padded_bytes for array in self._hlo.ops[op].types if array.dtype != "token") if op else 0
