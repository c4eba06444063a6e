"""One chip of a slice: the schedule machine, plus copies to other chips, signals to them, and waiting for them.

How the compiler names another chip (libtpu 0.0.42.1 and 0.0.51): a signal's operand is flag + (2 + core << 14) +
(chip << 17); a copy's ``overrides`` are chip + (1 << 14), with 2 + core from bit 26 on or nothing there, and the
flag it moves at the other end has 2 + core in the bits from 13 on. v5e has one core, number 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ratchet.chips import Chip
from ratchet.dump.files import TOP
from ratchet.dump.hlo import HloModule
from ratchet.dump.listing import Listing
from ratchet.dump.outline import CONSTANT
from ratchet.machine.addresses import GRANULES_PER_ADDRESS, START_UP, UNIT_BYTES
from ratchet.machine.dma import DmaEngine
from ratchet.machine.inputs import ScalarInputs
from ratchet.machine.interleaving import Interleaving
from ratchet.machine.known import WORDS_PER_GRANULE
from ratchet.machine.links import Links
from ratchet.machine.machine import Machine
from ratchet.machine.programs import Programs, Unit
from ratchet.machine.translate import DELAY_SLOTS
from ratchet.machine.unknown import Unknown
from ratchet.values.omission import Unmodelled

_CHIP = (1 << 14) - 1
_FLAG_OF_COPY = (1 << 13) - 1
_FLAG_OF_SIGNAL = (1 << 14) - 1
_CORE_0 = 2
_TO_A_CHIP = (1, 1 + (_CORE_0 << 12))
"""What may stand above the chip in a copy's overrides."""

_DEVICE_TABLE = 1024
"""HBM address of the runtime's table of chips by place in the mesh: below all buffers."""


@dataclass
class Shared:
    """What the chips of one slice have in common during a run."""

    links: Links
    turns: Interleaving
    constants: Mapping[str, Sequence[int]]
    """Words of the compiler's own constants, by allocation of the top level."""
    chip_ids: Sequence[int]
    """By place in the program's mesh."""
    members: list[Member] = field(default_factory=list)
    """By chip id."""
    senders: dict[int, dict[int, set[int]]] = field(default_factory=dict)
    """Per sync flag and chip that it was signalled at: which chips did."""
    own_copies: dict[int, set[int]] = field(default_factory=dict)
    """Per sync flag: chips at which it told that a copy of their own had left."""


class Member(Machine):
    """One run of one program on one chip of a slice."""

    def __init__(
        self,
        programs: Programs,
        hlo: HloModule,
        chip: Chip,
        compiler: str,
        scalar_inputs: ScalarInputs,
        *,
        shared: Shared,
        number: int,
        take_undecided: bool | None = None,
    ) -> None:
        """``number`` is the compiler's logical id of the chip."""
        super().__init__(programs, hlo, chip, compiler, scalar_inputs, take_undecided=take_undecided)
        self.number = number
        self.of_chip = {
            "chip ID": number,
            "partition id location": shared.chip_ids.index(number),
            "device assignment ptr": _DEVICE_TABLE,
        }
        self.sent_bytes = 0
        self.signalled: set[int] = set()
        """Sync flags of this chip that moved by what came from, or went to, another one."""
        self.waits_for: tuple[int, int, int] | None = None
        """Sync flag, wanted value and bundle address of the wait that this chip is in."""
        self._shared = shared
        self.launch_cycles = 0
        """When the launch check was over."""
        self._launch_waits: set[int] = set()
        self._launch_pushes: set[int] = set()
        self._launch_records = range(0)

    def _unit(self, name: str) -> Unit:
        fresh = name not in self._units
        unit = super()._unit(name)
        if fresh and name == TOP:
            self._start_up(unit)
        return unit

    def _start_up(self, top: Unit) -> None:
        """HBM as the runtime leaves it: the compiler's constants and the records of the launch."""
        self._known.write("hbm", _DEVICE_TABLE * GRANULES_PER_ADDRESS, _row(self._shared.chip_ids))
        listing = top.translated.listing
        self._launch_waits = {
            address
            for address, bundle in enumerate(listing.bundles)
            if any(instruction.notes.waits_for_launch for instruction in bundle)
        }
        self._launch_pushes = _pushes_of_launch_check(listing, self._launch_waits)
        for allocation in listing.allocations.values():
            where = top.addresses.get(allocation.name, 0) * GRANULES_PER_ADDRESS
            if allocation.role == CONSTANT:
                words: list[object] = list(self._shared.constants.get(allocation.name, ()))
                lacking = Unknown(f"{allocation.name}, a constant of the compiler's (give constants)", given=True)
                self._known.write("hbm", where, words or [lacking] * (allocation.size_bytes // 4))
            elif allocation.space == "hbm" and allocation.fixed and self._launch_pushes:
                records = allocation.size_bytes // UNIT_BYTES["hbm"]
                self._launch_records = range(where, where + records * GRANULES_PER_ADDRESS)
                record = _row((START_UP["launch barrier id"], START_UP["program descriptor state"]))
                self._known.write("hbm", where, record * records)
                self._not_modelled.add(Unmodelled.LAUNCH_CHECK)

    # --- waiting ---

    def wait(self, now: int, flag: int, least: int, address: int) -> int:
        self.waits_for = (flag, least, address)
        self._shared.turns.until(self.number, lambda: max(now, self._memory.reached(flag, least)))
        self.waits_for = None
        end = super().wait(now, flag, least, address)
        if self._stack[-1].name == TOP and address in self._launch_waits:
            self.launch_cycles = end
        return end

    def flag_value(self, now: int, flag: int) -> int:
        self._shared.turns.seen(self.number, now)
        return super().flag_value(now, flag)

    def flag_set(self, now: int, flag: int, value: int) -> None:
        self._shared.turns.seen(self.number, now)
        super().flag_set(now, flag, value)

    def unknown(self, address: int) -> object:
        """A vector result moved to a scalar; that of the launch check is "yes"."""
        if address in self._launch_pushes and self._stack[-1].name == TOP:
            return 1
        return super().unknown(address)

    # --- other chips ---

    def signal(self, now: int, word: int, amount: int, address: int) -> None:
        target, core, flag = word >> 17, word >> 14 & 7, word & _FLAG_OF_SIGNAL
        if core != _CORE_0:
            raise self._refuse(address, f"a signal to {word:#x}: core {core - _CORE_0} of a chip with one core")
        other = self._member(target, address)
        self._shared.turns.before(self.number, now)
        arrival = float(now)
        if other is not self:
            arrival = self._shared.links.send(now, now, self.number, target, 0).arrival
        self._deliver(other, arrival, flag, amount)

    def general_dma(
        self,
        now: int,
        source: str,
        start: object,
        target: str,
        stop: object,
        granules: int,
        flag: int,
        source_flag: int,
        overrides: int,
        address: int,
    ) -> None:
        if not overrides:
            super().general_dma(now, source, start, target, stop, granules, flag, source_flag, overrides, address)
            return
        if overrides >> 14 not in _TO_A_CHIP or flag >> 13 != _CORE_0:
            raise self._refuse(address, f"a copy with overrides {overrides:#x} and flag {flag:#x}, of unknown meaning")
        other = self._member(overrides & _CHIP, address)
        flag &= _FLAG_OF_COPY
        self._shared.turns.before(self.number, now)
        if other is self:
            done = self._memory.start(now, source, target, granules, flag)
            self._memory.arrive(done, source_flag, granules, remote=False)
        else:
            self._copy(now, other, source, target, granules, flag, source_flag)
        if isinstance(stop, int):
            other.overwritten(target, stop, granules, self.number)
        else:
            other._anywhere(target, stop)

    def _copy(
        self, now: int, other: Member, source: str, target: str, granules: int, flag: int, source_flag: int
    ) -> None:
        ready, whole = float(now), float(now)
        if source == "hbm":
            ready, whole = self._memory.read_for_another(now, granules)
        message = self._shared.links.send(now, ready, self.number, other.number, granules)
        late = self._memory.latency if "hbm" in (source, target) else 0.0
        self._memory.arrive(max(message.left, whole), source_flag, granules, remote=True)
        self.signalled.add(source_flag)
        self._shared.own_copies.setdefault(source_flag, set()).add(self.number)
        self._deliver(other, max(message.arrival, whole) + late, flag, granules)
        if target == "hbm":
            other.memory.written_by_another(granules)
        self.sent_bytes += message.size_bytes

    def _deliver(self, other: Member, time: float, flag: int, amount: int) -> None:
        other.memory.arrive(time, flag, amount, remote=other is not self)
        other.signalled.add(flag)
        self._shared.senders.setdefault(flag, {}).setdefault(other.number, set()).add(self.number)

    def _member(self, chip: int, address: int) -> Member:
        if not 0 <= chip < len(self._shared.members):
            raise self._refuse(address, f"chip {chip} is addressed, but the slice has {len(self._shared.members)}")
        return self._shared.members[chip]

    def overwritten(self, space: str, granule: int, granules: int, by: int) -> None:
        """Forgets contents that another chip wrote over."""
        if granule in self._launch_records and space == "hbm":
            return
        if space == "smem":
            unknown = Unknown(f"scalar memory that chip {by} wrote")
            self.smem.update(dict.fromkeys(range(granule, granule + granules * WORDS_PER_GRANULE), unknown))
        else:
            self._known.forget(space, granule, granules)

    def _move(self, source: str, start: object, target: str, stop: object, granules: int, strides: object) -> None:
        if target == "hbm" and stop in self._launch_records:
            return  # its own record, which says what is known of it
        super()._move(source, start, target, stop, granules, strides)

    # --- for the report ---

    @property
    def memory(self) -> DmaEngine:
        """Queues and sync flags of this chip."""
        return self._memory

    def unsettled(self) -> dict[str, int]:
        """Sync flags that moved by traffic between chips and are not back at 0: name and value."""
        left = {flag: self._memory.settled(flag) for flag in self.signalled}
        return {self._addresses.flag_name(flag): value for flag, value in left.items() if value}

    def waiting(self) -> str:
        """What this chip waits for, in words; ``""`` if it does not."""
        if self.waits_for is None:
            return ""
        flag, least, address = self.waits_for
        has = self._memory.settled(flag)
        op = self._calls[-1][0] if self._calls else "the top level"
        return (
            f"in {op} at {self._where(address)} waits for {self._addresses.flag_name(flag)} to reach {least}; "
            f"it stands at {has}, {least - has} short"
        )


def _row(words: Sequence[int | None]) -> list[object]:
    """One address step of HBM that begins with ``words``."""
    return [*words, *[0] * (UNIT_BYTES["hbm"] // UNIT_BYTES["smem"] - len(words))]


def _pushes_of_launch_check(listing: Listing, waits: set[int]) -> set[int]:
    """Addresses at which a loop that begins with such a wait moves what it compared to the scalar side."""
    found: set[int] = set()
    for end, bundle in enumerate(listing.bundles):
        for branch in bundle:
            target = branch.form.target
            if target in waits and target <= end:
                loop = range(target, end + DELAY_SLOTS + 1)
                found.update(a for a in loop if any(i.opcode == "vpush" for i in listing.bundles[a]))
    return found
