"""A program on a slice: one machine per chip, run together over the links.

All chips start at cycle 0. Each has its own memories, sync flags and HBM queue; they have nothing in common but what
they send each other.

How the compiler names another chip (libtpu 0.0.42.1 and 0.0.51): a signal's operand is flag + (2 + core << 14) +
(chip << 17); a copy's ``overrides`` are chip + (1 << 14), with 2 + core from bit 26 on or nothing there, and the
flag it moves at the other end has 2 + core in the bits from 13 on. One that stays on its chip may have 2 + core alone.
v5e has one core, number 0; slices of other chips are not described.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from ratchet.tpu.chips import V5E
from ratchet.tpu.dump.files import TOP
from ratchet.tpu.dump.outline import CONSTANT
from ratchet.tpu.machine.dma import GeneralDma
from ratchet.tpu.machine.links import Interleaving, Links, Peers
from ratchet.tpu.machine.machine import Machine
from ratchet.tpu.machine.memory import GRANULES_PER_ADDRESS, UNIT_BYTES, ScalarInputs
from ratchet.tpu.machine.programs import START_UP, Programs, Unit
from ratchet.tpu.machine.record import Record, Run
from ratchet.tpu.machine.translate import Translated
from ratchet.tpu.machine.words import NotExecutable, Unknown
from ratchet.values.omission import LinkModel, OpenSemaphore, Unmodelled
from ratchet.values.status import Refusal, Status

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
    chip_ids: Sequence[int]
    """By mesh index."""
    constants: Mapping[str, Sequence[int]]
    """Of :class:`Programs`."""
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


class SliceMember(Peers):
    """The peers of one machine: the other chips of the slice."""

    machine: Machine
    """The one that these are the peers of."""

    def __init__(self, shared: Shared, number: int) -> None:
        """``number`` is the compiler's logical id of the chip."""
        place = shared.chip_ids.index(number)
        super().__init__({"chip ID": number, "partition id location": place, "device assignment ptr": _DEVICE_TABLE})
        self.number = number
        self.sent_bytes = 0
        self.waits_for: Wait | None = None
        self.launch_cycles = 0
        """When the launch check was over."""
        self._signalled: set[int] = set()
        """Sync flags of this chip that moved by what came from, or went to, another one."""
        self._shared = shared
        self._launch_waits: set[int] = set()
        self._launch_pushes: set[int] = set()
        self._launch_records = range(0)

    def begin(self, top: Unit) -> None:
        """HBM as the runtime leaves it: the compiler's constants and the records of the launch."""
        machine, translated, listing = self.machine, top.translated, top.translated.listing
        machine.memory.write("hbm", _DEVICE_TABLE * GRANULES_PER_ADDRESS, _row(self._shared.chip_ids))
        self._launch_waits = listing.columns.addresses(listing.columns.with_notes(lambda one: one.waits_for_launch))
        self._launch_pushes = _pushes_of_launch_check(translated, self._launch_waits)
        for allocation in listing.allocations.values():
            where = top.addresses.get(allocation.name, 0) * GRANULES_PER_ADDRESS
            if allocation.role == CONSTANT:
                words: list[object] = list(self._shared.constants.get(allocation.name, ()))
                lacking = Unknown(f"{allocation.name}, a constant of the compiler's (give constants)", given=True)
                machine.memory.write("hbm", where, words or [lacking] * (allocation.size_bytes // 4))
            elif allocation.space == "hbm" and allocation.fixed and self._launch_pushes:
                records = allocation.size_bytes // V5E.hbm_address_bytes
                self._launch_records = range(where, where + records * GRANULES_PER_ADDRESS)
                record = _row((START_UP["launch barrier id"], START_UP["program descriptor state"]))
                machine.memory.write("hbm", where, record * records)
                machine.not_modelled.add(Unmodelled.LAUNCH_CHECK)

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

    def signal(self, now: int, word: int, amount: int) -> None:
        target, core, flag = word >> 17, word >> 14 & 7, word & _FLAG_OF_SIGNAL
        if core != _CORE_0:
            raise NotExecutable(f"a signal to {word:#x}: core {core - _CORE_0} of a chip with one core")
        other = self._member(target)
        self._shared.order.before(self.number, now)
        arrival = float(now)
        if other is not self:
            arrival = self._shared.links.send(now, self.number, target, 0).arrival
        self._deliver(other, arrival, flag, amount)

    def general_dma(self, dma: GeneralDma) -> bool:
        if not dma.overrides:
            return False
        if dma.overrides == _TO_THIS_CORE and not dma.flag >> 13:
            self._copy_here(dma, dma.flag)
            return True
        if dma.overrides >> 14 not in _TO_A_CHIP or dma.flag >> 13 != _CORE_0:
            raise NotExecutable(f"a copy with overrides {dma.overrides:#x} and flag {dma.flag:#x}, of unknown meaning")
        other = self._member(dma.overrides & _CHIP)
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
        if not self.keeps(dma.target, dma.stop):
            unknown = Unknown(f"scalar memory that chip {by} wrote")
            self.machine.memory.overwrite(dma.target, dma.stop, dma.granules, lambda: unknown)

    def _copy(self, dma: GeneralDma, other: SliceMember, flag: int) -> None:
        engine = self.machine.engine
        if dma.source == "hbm":
            engine.carry(dma.granules, writes=False)
        message = self._shared.links.send(dma.now, self.number, other.number, dma.granules)
        late = engine.latency if "hbm" in (dma.source, dma.target) else 0.0
        engine.arrive(message.left, dma.source_flag, dma.granules, remote=True)
        self._signalled.add(dma.source_flag)
        self._shared.own_copies.setdefault(dma.source_flag, set()).add(self.number)
        self._deliver(other, message.arrival + late, flag, dma.granules)
        if dma.target == "hbm":
            other.machine.engine.carry(dma.granules, writes=True)
        self.sent_bytes += message.size_bytes

    def _deliver(self, other: SliceMember, time: float, flag: int, amount: int) -> None:
        other.machine.engine.arrive(time, flag, amount, remote=other is not self)
        other._signalled.add(flag)
        self._shared.senders.setdefault(flag, {}).setdefault(other.number, set()).add(self.number)

    def _member(self, chip: int) -> SliceMember:
        if not 0 <= chip < len(self._shared.members):
            raise NotExecutable(f"chip {chip} is addressed, but the slice has {len(self._shared.members)}")
        return self._shared.members[chip]

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


def run_slice(programs: Programs, scalar_inputs: Sequence[ScalarInputs], *, take_undecided: bool | None = None) -> Run:
    """Runs a program on all chips of a slice, each with what steers it, by mesh index; see :class:`Machine`.

    Raises:
        Refusal: as a machine alone; DEADLOCK if all chips wait for each other, with who waits for what.
    """
    ici, chip_ids = programs.chip.ici, programs.hlo.device_ids
    links = Links(ici, programs.chip.clock_hz)
    order = Interleaving(ici.chips, links.hop_cycles, lambda: _deadlock(shared))
    shared = Shared(links=links, order=order, constants=programs.constants, chip_ids=chip_ids)
    shared.members.extend(SliceMember(shared, number) for number in range(ici.chips))
    for member in shared.members:
        given = scalar_inputs[chip_ids.index(member.number)]
        member.machine = Machine(programs, given, member, take_undecided=take_undecided)
    records: dict[int, Record] = {}

    def work(member: SliceMember) -> None:
        records[member.number] = member.machine.execute()

    order.run([partial(work, member) for member in shared.members])
    link_model = LinkModel(link_bytes_per_s=ici.link_bytes_per_s, hop_s=ici.hop_s)
    used, messages = links.use(), (*links.log.first, *links.log.last)
    chips = []
    for member in shared.members:
        record = records[member.number]
        left = member.unsettled().items()
        open_flags = [OpenSemaphore(name=member.machine.addresses.flag_name(flag), value=value) for flag, value in left]
        chips.append(
            replace(
                record,
                sent_bytes=member.sent_bytes,
                launch_cycles=member.launch_cycles,
                messages=messages,
                link_busy_cycles=max(link.busy_cycles for link in used),
                not_modelled=(*record.not_modelled, link_model, *open_flags),
            )
        )
    return Run(chips=tuple(chips), links=used)


def _deadlock(shared: Shared) -> Refusal:
    """All chips wait, and nothing is under way: who waits for whom, and for what."""
    stuck = [member for member in shared.members if member.waits_for is not None]
    ended = {member.number for member in shared.members} - {member.number for member in stuck}
    edges = [f"chip {member.number} for {_awaited(shared, member)}" for member in stuck]
    if ended:
        edges.append(f"{_chips(ended)} reached the end")
    places = [f"Chip {member.number}, place {shared.chip_ids.index(member.number)} in the mesh, {_waiting(member)}"
              f"{_so_far(shared, member)}." for member in stuck]  # fmt: skip
    return Refusal(
        Status.DEADLOCK,
        f"the chips wait for each other for ever: {'; '.join(edges)}. {' '.join(places)} "
        "Nothing is under way between them: look for a signal or a copy that not every chip sends.",
    )


def _awaited(shared: Shared, member: SliceMember) -> str:
    """Who should have ended this wait, by what the other chips did."""
    flag = member.waits_for.flag if member.waits_for else 0
    at = shared.senders.get(flag, {})
    leavers = shared.own_copies.get(flag, set())
    if leavers and member.number not in leavers:
        return f"a copy of its own that it never starts ({_chips(leavers)} did)"
    if not at:
        return "a signal that no chip ever sends"
    silent = {other.number for other in shared.members} - set().union(*at.values()) - {member.number}
    return _chips(silent, "or") if silent else f"more than {_chips(at.get(member.number, set()))} sent"


def _so_far(shared: Shared, member: SliceMember) -> str:
    at = shared.senders.get(member.waits_for.flag if member.waits_for else 0, {})
    sent = [f"at chip {number} by {_chips(by)}" for number, by in sorted(at.items())]
    return f" (signalled so far {', '.join(sent)})" if sent else ""


def _chips(numbers: set[int], word: str = "and") -> str:
    *most, last = map(str, sorted(numbers)) if numbers else ("none",)
    return f"chips {', '.join(most)} {word} {last}" if most else f"chip {last}"


def _waiting(member: SliceMember) -> str:
    """What a chip waits for."""
    assert member.waits_for is not None
    machine, (flag, least, address) = member.machine, member.waits_for
    has = machine.engine.settled(flag)
    op = machine.calls[-1][0] if machine.calls else "the top level"
    return (
        f"in {op} at {machine.where(address)} waits for {machine.addresses.flag_name(flag)} to reach {least}; "
        f"it is at {has}, {least - has} short"
    )
