"""The SparseCores as the program of a TensorCore sees them: it hands them descriptors, starts them, waits for them.

The protocol (tpu7x and v5p): the TensorCore copies a descriptor into a queue in HBM. It adds 1 to the
go flag of each SparseCore, which then runs the program of its next descriptor and adds 1 to its completion flag on the
TensorCore. The descriptor of an operation of the HLO is copied with a flag that the operation waits for; those of
start-up and of the end are copied with a flag of the TensorCore's own and announced on the flag that says that a
descriptor is there. Which flags these are differs from compiler to compiler: see :data:`KNOWN`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from ratchet.tpu.chips import Chip
from ratchet.tpu.dump.hlo import HloModule
from ratchet.tpu.machine.dma import DmaEngine, GeneralDma
from ratchet.tpu.machine.elsewhere import handed, moves, received
from ratchet.tpu.machine.tiles import Work
from ratchet.tpu.machine.words import NotExecutable


class Flags(NamedTuple):
    """Flags of a SparseCore that a TensorCore moves."""

    go: int
    """Starts the next program."""
    available: int
    """Says that a descriptor is in the queue."""
    head: int
    """Says how far the queue has been read; only reset here."""


KNOWN = {
    "v5p": (Flags(7043, 7163, 7162), Flags(7041, 2, 7042)),
    "v6e": (Flags(7053, 7163, 7162), Flags(7051, 2, 7052)),
    "tpu7x": (Flags(7053, 7163, 7162), Flags(7051, 2, 7052)),
}
"""By chip, as libtpu 0.0.42.1 and 0.0.50.1 write them. A program shows which it has: it resets all three first."""

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

    def __init__(
        self,
        chip: Chip,
        hlo: HloModule,
        engine: DmaEngine,
        done_flags: Mapping[int, int],
        work_of: Callable[[str], Sequence[Work] | None] = lambda _: None,
    ) -> None:
        """A run begins.

        Args:
            chip: whose they are.
            hlo: the program.
            engine: the TensorCore's, whose flags they move.
            done_flags: per SparseCore, the TensorCore's flag that says that a program is over.
            work_of: of a kernel, what each SparseCore does; None for other operations.
        """
        self._chip = chip
        self._hlo = hlo
        self._engine = engine
        self._queues: dict[int, deque[str]] = {}
        """Per SparseCore, the operations whose descriptors wait; ``""`` for start-up and end."""
        self._prepared = iter(handed(hlo, hlo.entry_ops()))
        """Operations that the SparseCores run, in the order in which they are prepared."""
        self._handing = _Handing("", -1, set())
        self.exchanges = False
        """Whether they exchanged anything with other chips."""
        self._done_flags = done_flags
        self._work_of = work_of
        self.kernels = False
        """Whether they ran a kernel."""
        self._known: tuple[Flags, ...] = KNOWN.get(chip.name, ())
        """The sets of flags that the program may have, by those that it has named."""

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
        self._known = tuple(flags for flags in self._known if word & _FLAG in flags)
        if value or not self._known:
            raise NotExecutable(f"flag {word & _FLAG} of a SparseCore set to {value}, of unknown meaning")

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
        timed = moves(self._hlo, self._handing.op) or self._work_of(self._handing.op) is not None
        if not timed and received(self._hlo, self._handing.op) is None:
            raise NotExecutable(f"a descriptor for {self._handing.op!r}, which does more than copy")
        queue.append(self._handing.op)
        done = self._engine.start(copy.now, copy.source, copy.target, copy.granules, _DUMMY)
        for counter in (copy.flag >> 16, copy.source_flag & _FLAG):
            self._engine.later(copy.now, ceil(done) - copy.now, counter, 1)

    def signal(self, now: int, word: int, amount: int) -> None:
        """A flag of a SparseCore is raised. Raises NotExecutable for an unknown one, or one with nothing to start."""
        core, flag = self._number(word >> _UNIT), word & _FLAG
        queue = self._queues.setdefault(core, deque())
        starts = any(flag == known.go for known in self._known)
        announces = any(flag == known.available for known in self._known)
        if amount != 1 or not (starts or announces) or core not in self._done_flags:
            raise NotExecutable(f"a signal of {amount} to flag {flag} of SparseCore {core}")
        if announces:
            queue.append("")
            return
        if not queue:
            raise NotExecutable(f"SparseCore {core} is started without a descriptor")
        op = queue.popleft()
        if op and (work := self._work_of(op)) is not None:
            self.kernels = True
            self._engine.offload(now, core, 0, self._done_flags[core], work=work[core])
            return
        exchanged = received(self._hlo, op) if op and not moves(self._hlo, op) else None
        moved = self._moved(op) if exchanged is None else exchanged
        self.exchanges |= exchanged is not None
        self._engine.offload(now, core, moved, self._done_flags[core], exchanged=exchanged is not None)

    def _number(self, unit: int) -> int:
        """Of a SparseCore among those of its device: a chip counts those of its first device first."""
        return ((unit & _UNITS) - _FIRST_UNIT) % max(1, len(self._done_flags))

    def _moved(self, op: str) -> int:
        """Bytes of an operation's operands and results; 0 for start-up and end."""
        if not op:
            return 0
        start = self._hlo.ops[op]
        given = next((user for user in self._hlo.users(start) if user.opcode == "async-update"), start)
        return sum(array.padded_bytes for array in given.types if array.dtype != "token")
