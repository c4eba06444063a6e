"""One chip of a slice: copies to other chips, signals to them, and waiting for them.

How the compiler names another chip (libtpu 0.0.42.1 and 0.0.51): a signal's operand is flag + (2 + core << 14) +
(chip << 17); a copy's ``overrides`` are chip + (1 << 14), with 2 + core from bit 26 on or nothing there, and the
flag it moves at the other end has 2 + core in the bits from 13 on. One that stays on its chip may have 2 + core alone.
v5e has one core, number 0; slices of other chips are not described.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ratchet.tpu.chips import V5E
from ratchet.tpu.dump.files import TOP
from ratchet.tpu.dump.outline import CONSTANT
from ratchet.tpu.machine.addresses import GRANULES_PER_ADDRESS, START_UP, UNIT_BYTES
from ratchet.tpu.machine.interleaving import Interleaving
from ratchet.tpu.machine.known import WORDS_PER_GRANULE
from ratchet.tpu.machine.links import Links
from ratchet.tpu.machine.peers import Attached, GeneralDma
from ratchet.tpu.machine.programs import Unit
from ratchet.tpu.machine.translate import Translated
from ratchet.tpu.machine.unknown import Unknown
from ratchet.values.omission import Unmodelled

_CHIP = (1 << 14) - 1
_FLAG_OF_COPY = (1 << 13) - 1
_FLAG_OF_SIGNAL = (1 << 14) - 1
_CORE_0 = 2
_TO_A_CHIP = (1, 1 + (_CORE_0 << 12))
"""What may be above the chip in a copy's overrides."""
_TO_THIS_CORE = _CORE_0 << 26
"""Overrides of a copy that names its own core and no chip: XLA's reductions fetch their operands so."""

_DEVICE_TABLE = 1024
"""HBM address of the runtime's table of chips by place in the mesh: below all buffers."""


@dataclass
class Shared:
    """What the chips of one slice have in common during a run."""

    links: Links
    order: Interleaving
    constants: Mapping[str, Sequence[int]]
    """Words of the compiler's own constants, by allocation of the top level."""
    chip_ids: Sequence[int]
    """By mesh index."""
    members: list[SliceMember] = field(default_factory=list)
    """By chip id."""
    senders: dict[int, dict[int, set[int]]] = field(default_factory=dict)
    """Per sync flag and chip that it was signalled at: which chips did."""
    own_copies: dict[int, set[int]] = field(default_factory=dict)
    """Per sync flag: chips at which it signalled that a copy of their own had left."""


class Wait(NamedTuple):
    """A wait that a chip is in."""

    flag: int
    least: int
    address: int


class SliceMember:
    """The peers of one machine: the other chips of the slice."""

    def __init__(self, shared: Shared, number: int) -> None:
        """``number`` is the compiler's logical id of the chip."""
        self.number = number
        self.start_up: Mapping[str, int] = {
            "chip ID": number,
            "partition id location": shared.chip_ids.index(number),
            "device assignment ptr": _DEVICE_TABLE,
        }
        self.sent_bytes = 0
        self.waits_for: Wait | None = None
        self.launch_cycles = 0
        """When the launch check was over."""
        self.machine: Attached
        self._signalled: set[int] = set()
        """Sync flags of this chip that moved by what came from, or went to, another one."""
        self._shared = shared
        self._launch_waits: set[int] = set()
        self._launch_pushes: set[int] = set()
        self._launch_records = range(0)

    def attach(self, machine: Attached) -> None:
        self.machine = machine

    def begin(self, top: Unit) -> None:
        """HBM as the runtime leaves it: the compiler's constants and the records of the launch."""
        machine, translated, listing = self.machine, top.translated, top.translated.listing
        machine.known.write("hbm", _DEVICE_TABLE * GRANULES_PER_ADDRESS, _row(self._shared.chip_ids))
        self._launch_waits = listing.columns.addresses(listing.columns.with_notes(lambda one: one.waits_for_launch))
        self._launch_pushes = _pushes_of_launch_check(translated, self._launch_waits)
        for allocation in listing.allocations.values():
            where = top.addresses.get(allocation.name, 0) * GRANULES_PER_ADDRESS
            if allocation.role == CONSTANT:
                words: list[object] = list(self._shared.constants.get(allocation.name, ()))
                lacking = Unknown(f"{allocation.name}, a constant of the compiler's (give constants)", given=True)
                machine.known.write("hbm", where, words or [lacking] * (allocation.size_bytes // 4))
            elif allocation.space == "hbm" and allocation.fixed and self._launch_pushes:
                records = allocation.size_bytes // V5E.hbm_address_bytes
                self._launch_records = range(where, where + records * GRANULES_PER_ADDRESS)
                record = _row((START_UP["launch barrier id"], START_UP["program descriptor state"]))
                machine.known.write("hbm", where, record * records)
                machine.leave_out(Unmodelled.LAUNCH_CHECK)

    # --- waiting ---

    def before_wait(self, now: int, flag: int, least: int, address: int) -> None:
        self.waits_for = Wait(flag, least, address)
        self._shared.order.until(self.number, lambda: max(now, self.machine.engine.reached(flag, least)))
        self.waits_for = None

    def after_wait(self, unit: Unit, address: int, end: int) -> None:
        if unit.name == TOP and address in self._launch_waits:
            self.launch_cycles = end

    def settle(self, now: int) -> None:
        self._shared.order.seen(self.number, now)

    def agrees(self, unit: Unit, address: int) -> bool:
        return address in self._launch_pushes and unit.name == TOP

    # --- other chips ---

    def signal(self, now: int, word: int, amount: int, address: int) -> None:
        target, core, flag = word >> 17, word >> 14 & 7, word & _FLAG_OF_SIGNAL
        if core != _CORE_0:
            why = f"a signal to {word:#x}: core {core - _CORE_0} of a chip with one core"
            raise self.machine.refuse(address, why)
        other = self._member(target, address)
        self._shared.order.before(self.number, now)
        arrival = float(now)
        if other is not self:
            arrival = self._shared.links.send(now, now, self.number, target, 0).arrival
        self._deliver(other, arrival, flag, amount)

    def general_dma(self, dma: GeneralDma) -> bool:
        if not dma.overrides:
            return False
        if dma.overrides == _TO_THIS_CORE and not dma.flag >> 13:
            self._copy_here(dma, dma.flag)
            return True
        if dma.overrides >> 14 not in _TO_A_CHIP or dma.flag >> 13 != _CORE_0:
            why = f"a copy with overrides {dma.overrides:#x} and flag {dma.flag:#x}, of unknown meaning"
            raise self.machine.refuse(dma.address, why)
        other = self._member(dma.overrides & _CHIP, dma.address)
        flag = dma.flag & _FLAG_OF_COPY
        self._shared.order.before(self.number, dma.now)
        if other is self:
            self._copy_here(dma, flag)
        else:
            self._copy(dma, other, flag)
            other._written(dma, self.number)
        return True

    def _copy_here(self, dma: GeneralDma, flag: int) -> None:
        """A copy that stays on this chip and signals its source too."""
        done = self.machine.engine.start(dma.now, dma.source, dma.target, dma.granules, flag)
        self.machine.engine.arrive(done, dma.source_flag, dma.granules, remote=False)
        self._written(dma, self.number)

    def _written(self, dma: GeneralDma, by: int) -> None:
        """Forgets contents of this chip that a copy writes over."""
        if isinstance(dma.stop, int):
            self._overwritten(dma.target, dma.stop, dma.granules, by)
        else:
            self.machine.forget(dma.target, dma.stop)

    def _copy(self, dma: GeneralDma, other: SliceMember, flag: int) -> None:
        engine = self.machine.engine
        if dma.source == "hbm":
            engine.read_for_another(dma.granules)
        message = self._shared.links.send(dma.now, dma.now, self.number, other.number, dma.granules)
        late = engine.latency if "hbm" in (dma.source, dma.target) else 0.0
        engine.arrive(message.left, dma.source_flag, dma.granules, remote=True)
        self._signalled.add(dma.source_flag)
        self._shared.own_copies.setdefault(dma.source_flag, set()).add(self.number)
        self._deliver(other, message.arrival + late, flag, dma.granules)
        if dma.target == "hbm":
            other.machine.engine.written_by_another(dma.granules)
        self.sent_bytes += message.size_bytes

    def _deliver(self, other: SliceMember, time: float, flag: int, amount: int) -> None:
        other.machine.engine.arrive(time, flag, amount, remote=other is not self)
        other._signalled.add(flag)
        self._shared.senders.setdefault(flag, {}).setdefault(other.number, set()).add(self.number)

    def _member(self, chip: int, address: int) -> SliceMember:
        if not 0 <= chip < len(self._shared.members):
            why = f"chip {chip} is addressed, but the slice has {len(self._shared.members)}"
            raise self.machine.refuse(address, why)
        return self._shared.members[chip]

    def _overwritten(self, space: str, granule: int, granules: int, by: int) -> None:
        """Forgets contents that another chip wrote over."""
        if self.keeps(space, granule):
            return
        if space == "smem":
            unknown = Unknown(f"scalar memory that chip {by} wrote")
            self.machine.smem.update(dict.fromkeys(range(granule, granule + granules * WORDS_PER_GRANULE), unknown))
        else:
            self.machine.known.forget(space, granule, granules)

    def keeps(self, space: str, granule: object) -> bool:
        # Its own record says what is known of it.
        return space == "hbm" and isinstance(granule, int) and granule in self._launch_records

    def unsettled(self) -> dict[int, int]:
        """Sync flags that moved by traffic between chips and are not back at 0, and where they are."""
        left = {flag: self.machine.engine.settled(flag) for flag in self._signalled}
        return {flag: value for flag, value in left.items() if value}


def _row(words: Sequence[int | None]) -> list[object]:
    """One address step of HBM that begins with ``words``."""
    return [*words, *[0] * (V5E.hbm_address_bytes // UNIT_BYTES["smem"] - len(words))]


def _pushes_of_launch_check(translated: Translated, waits: set[int]) -> set[int]:
    """Addresses at which a loop that begins with such a wait moves what it compared to the scalar side."""
    columns, found = translated.listing.columns, set[int]()
    pushes = columns.addresses(columns.with_opcode("vpush".__eq__))
    for branch, target in columns.branches.items():
        if target in waits:
            found.update(pushes.intersection(range(target, int(columns.bundle[branch]) + translated.delay_slots + 1)))
    return found
