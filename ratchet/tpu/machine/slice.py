"""A program on a slice: one machine per chip, run together over the links.

All chips start at cycle 0. Each has its own memories, sync flags and HBM queue; they have nothing in common but what
they send each other.

How the compiler names another chip (libtpu 0.0.42.1 and 0.0.51): a signal's operand is flag + (2 + core << 14) +
(chip << 17); a copy's ``overrides`` are chip + (1 << 14), with 2 + core from bit 26 on or nothing there, and the
flag it moves at the other end has 2 + core in the bits from 13 on. One that stays on its chip may have 2 + core alone.
v5e has one core, number 0; slices of other chips are not described.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from ratchet.tpu.dump.files import TOP
from ratchet.tpu.dump.outline import CONSTANT
from ratchet.tpu.machine.dma import GRANULE_BYTES, GeneralDma
from ratchet.tpu.machine.links import Interleaving, Links
from ratchet.tpu.machine.machine import Machine
from ratchet.tpu.machine.memory import UNIT_BYTES, ScalarInputs
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

_DEVICE_TABLE = 1024
"""HBM address of the runtime's table of chips by place in the mesh: below all buffers."""
_RECORD_BYTES = 512
"""Of a launch record, and of that table."""
_AT_THE_SOURCE = (0, 1, _CORE_0)
"""What may be above the flag of a copy's source, from bit 16 on: nothing on v5e; on v6e 1, which XLA's reductions have,
or 2 + core."""


@dataclass
class Shared:
    """What the chips of one slice have in common during a run."""

    links: Links
    order: Interleaving
    chips: list[ChipOfSlice] = field(default_factory=list)
    """By the compiler's logical id."""
    senders: dict[int, dict[int, set[int]]] = field(default_factory=dict)
    """Per sync flag and chip that it was signalled at: which chips did."""
    own_copies: dict[int, set[int]] = field(default_factory=dict)
    """Per sync flag: chips at which it signalled that a copy of their own had left."""


class Wait(NamedTuple):
    """A wait that a chip is in."""

    flag: int
    least: int
    address: int


class ChipOfSlice(Machine):
    """A machine that sends to others, and waits for them."""

    def __init__(
        self,
        shared: Shared,
        number: int,
        programs: Programs,
        scalar_inputs: Sequence[ScalarInputs],
        *,
        take_undecided: bool | None = None,
    ) -> None:
        """``number`` is the compiler's logical id of the chip; ``scalar_inputs`` are by mesh index."""
        self.place = programs.hlo.device_ids.index(number)
        """In the mesh."""
        self._devices = programs.chip.devices
        start_up = {
            "chip ID": number // self._devices,
            "core index": number % self._devices,
            "partition id location": self.place,
            "device assignment ptr": _DEVICE_TABLE,
        }
        super().__init__(programs, scalar_inputs[self.place], start_up=start_up, take_undecided=take_undecided)
        self.number = number
        self.waits_for: Wait | None = None
        self._sent_bytes = 0
        self._launch_cycles = 0
        """When the launch check was over."""
        self._signalled: set[int] = set()
        """Sync flags of this chip that moved by what came from, or went to, another one."""
        self._shared = shared
        self._launch_waits: set[int] = set()
        self._launch_pushes: set[int] = set()
        self._launch_records = range(0)

    def execute(self) -> Record:
        self._begin(self._unit(TOP))
        record = super().execute()
        return replace(record, chip_index=self.number, sent_bytes=self._sent_bytes, launch_cycles=self._launch_cycles)

    def _begin(self, top: Unit) -> None:
        """HBM as the runtime leaves it: the compiler's constants and the records of the launch."""
        translated, listing = top.translated, top.translated.listing
        self.memory.hold("hbm", _DEVICE_TABLE, _row(self._programs.hlo.device_ids))
        self._launch_waits = listing.columns.addresses(listing.columns.with_notes(lambda one: one.waits_for_launch))
        self._launch_pushes = _pushes_of_launch_check(translated, self._launch_waits)
        for allocation in listing.allocations.values():
            where = self.memory.granule("hbm", top.addresses.get(allocation.name, 0))
            if allocation.role == CONSTANT:
                words: list[object] = list(self._programs.constants.get(allocation.name, ()))
                lacking = Unknown(f"{allocation.name}, a constant of the compiler's (give constants)", given=True)
                self.memory.write("hbm", where, words or [lacking] * (allocation.size_bytes // 4))
            elif allocation.space == "hbm" and allocation.fixed and self._launch_pushes:
                records = allocation.size_bytes // _RECORD_BYTES
                self._launch_records = range(where, where + allocation.size_bytes // GRANULE_BYTES)
                record = _row((START_UP["launch barrier id"], START_UP["program descriptor state"]))
                self.memory.write("hbm", where, record * records)
                self.not_modelled.add(Unmodelled.LAUNCH_CHECK)

    # --- called by generated code ---

    def wait(self, now: int, flag: int, least: int, address: int) -> int:
        self.waits_for = Wait(flag, least, address)
        self._shared.order.until(self.number, lambda: max(now, self.engine.reached(flag, least)))
        self.waits_for = None
        end = super().wait(now, flag, least, address)
        if self._stack[-1].name == TOP and address in self._launch_waits:
            self._launch_cycles = end
        return end

    def unknown(self, address: int) -> object:
        if self._stack[-1].name == TOP and address in self._launch_pushes:
            return 1  # the launch check's "yes"
        return super().unknown(address)

    def _await_arrivals(self, now: int) -> None:
        self._shared.order.seen(self.number, now)

    def _keeps(self, space: str, granule: object) -> bool:
        # Its own record says what is known of it.
        return space == "hbm" and isinstance(granule, int) and granule in self._launch_records

    # --- other chips ---

    def _signal_chip(self, now: int, word: int, amount: int) -> None:
        chip, core, flag = word >> 17, (word >> 14 & 7) - _CORE_0, word & _FLAG_OF_SIGNAL
        if not 0 <= core < self._devices:
            raise NotExecutable(f"a signal to {word:#x}: core {core} of a chip with {self._devices}")
        target = chip * self._devices + core
        other = self._chip(target)
        self._shared.order.before(self.number, now)
        arrival = float(now)
        if other is not self:
            arrival = self._shared.links.send(now, self.number, target, 0).arrival
        self._deliver(other, arrival, flag, amount)

    def _sends(self, copy: GeneralDma) -> bool:
        if not copy.overrides:
            return False
        own = _CORE_0 + self.number % self._devices << 26
        if copy.overrides == own and not copy.flag >> 13:  # names no chip: XLA's reductions fetch their operands so
            self._copy_here(copy, copy.flag)
            return True
        core, above = (copy.flag >> 13) - _CORE_0, copy.overrides >> 14
        if above not in _above(core, self._devices) or not 0 <= core < self._devices:
            raise NotExecutable(
                f"a copy with overrides {copy.overrides:#x} and flag {copy.flag:#x}, of unknown meaning"
            )
        if copy.source_flag >> 16 not in _AT_THE_SOURCE:
            raise NotExecutable(f"a copy whose source has the flag {copy.source_flag:#x}, of unknown meaning")
        copy = copy._replace(source_flag=copy.source_flag & _FLAG_OF_SIGNAL)
        other = self._chip((copy.overrides & _CHIP) * self._devices + core)
        flag = copy.flag & _FLAG_OF_COPY
        self._shared.order.before(self.number, copy.now)
        if other is self:
            self._copy_here(copy, flag)
        else:
            self._copy_there(copy, other, flag)
            other._written(copy, self.number)
        return True

    def _copy_here(self, copy: GeneralDma, flag: int) -> None:
        """A copy that stays on this chip and signals its source too."""
        done = self.engine.start(copy.now, copy.source, copy.target, copy.granules, flag)
        self.engine.arrive(done, copy.source_flag, copy.granules, remote=False)
        self._written(copy, self.number)

    def _written(self, copy: GeneralDma, by: int) -> None:
        """Forgets contents of this chip that a copy writes over."""
        if not self._keeps(copy.target, copy.stop):
            unknown = Unknown(f"scalar memory that chip {by} wrote")
            self.memory.overwrite(copy.target, copy.stop, copy.granules, lambda: unknown)

    def _copy_there(self, copy: GeneralDma, other: ChipOfSlice, flag: int) -> None:
        if copy.source == "hbm":
            self.engine.carry(copy.granules, writes=False)
        message = self._shared.links.send(copy.now, self.number, other.number, copy.granules)
        late = self.engine.latency if "hbm" in (copy.source, copy.target) else 0.0
        self.engine.arrive(message.left, copy.source_flag, copy.granules, remote=True)
        self._signalled.add(copy.source_flag)
        self._shared.own_copies.setdefault(copy.source_flag, set()).add(self.number)
        self._deliver(other, message.arrival + late, flag, copy.granules)
        if copy.target == "hbm":
            other.engine.carry(copy.granules, writes=True)
        self._sent_bytes += message.size_bytes

    def _deliver(self, other: ChipOfSlice, time: float, flag: int, amount: int) -> None:
        other.engine.arrive(time, flag, amount, remote=other is not self)
        other._signalled.add(flag)
        self._shared.senders.setdefault(flag, {}).setdefault(other.number, set()).add(self.number)

    def _chip(self, number: int) -> ChipOfSlice:
        if not 0 <= number < len(self._shared.chips):
            raise NotExecutable(f"chip {number} is addressed, but the slice has {len(self._shared.chips)}")
        return self._shared.chips[number]

    def open_semaphores(self) -> list[OpenSemaphore]:
        """Sync flags that moved by traffic between chips and are not back at 0."""
        left = {flag: self.engine.final_value(flag) for flag in self._signalled}
        return [OpenSemaphore(name=self.addresses.flag_name(flag), value=n) for flag, n in left.items() if n]


def _above(core: int, devices: int) -> tuple[int, ...]:
    """What may be above the chip in a copy's overrides, from bit 14 on, for a core of a chip with so many devices."""
    named = 1 + (_CORE_0 + core << 12)  # 2 + core from bit 26 on
    return (named, 1 if devices == 1 else 1 + (1 + core << 10))  # in the launch check nothing, or 1 + core from bit 24


def _row(words: Sequence[int | None]) -> list[object]:
    """A record in HBM that begins with ``words``."""
    return [*words, *[0] * (_RECORD_BYTES // UNIT_BYTES["smem"] - len(words))]


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
    ici = programs.chip.ici(len(programs.hlo.device_ids))
    links = Links(ici, programs.chip.clock_hz)
    order = Interleaving(ici.chips, links.hop_cycles, lambda: _deadlock(shared))
    shared = Shared(links=links, order=order)
    for number in range(ici.chips):
        shared.chips.append(ChipOfSlice(shared, number, programs, scalar_inputs, take_undecided=take_undecided))
    records: dict[int, Record] = {}

    def work(chip: ChipOfSlice) -> None:
        records[chip.number] = chip.execute()

    order.run([partial(work, chip) for chip in shared.chips])
    link_model = LinkModel(link_bytes_per_s=ici.link_bytes_per_s, hop_s=ici.hop_s, source=ici.source)
    used, messages = links.use(), (*links.log.first, *links.log.last)
    chips = [
        replace(
            records[chip.number],
            messages=messages,
            link_busy_cycles=max(link.busy_cycles for link in used),
            not_modelled=(*records[chip.number].not_modelled, link_model, *chip.open_semaphores()),
        )
        for chip in shared.chips
    ]
    return Run(chips=tuple(chips), links=used)


def _deadlock(shared: Shared) -> Refusal:
    """All chips wait, and nothing is under way: who waits for whom, and for what."""
    stuck = [chip for chip in shared.chips if chip.waits_for is not None]
    ended = {chip.number for chip in shared.chips} - {chip.number for chip in stuck}
    edges = [f"chip {chip.number} for {_awaited(shared, chip)}" for chip in stuck]
    if ended:
        edges.append(f"{_chips(ended)} reached the end")
    places = [
        f"Chip {chip.number}, place {chip.place} in the mesh, {_waiting(chip)}{_so_far(shared, chip)}."
        for chip in stuck
    ]
    return Refusal(
        Status.DEADLOCK,
        f"the chips wait for each other for ever: {'; '.join(edges)}. {' '.join(places)} "
        "Nothing is under way between them: look for a signal or a copy that not every chip sends.",
    )


def _awaited(shared: Shared, chip: ChipOfSlice) -> str:
    """Who should have ended this wait, by what the other chips did."""
    flag = chip.waits_for.flag if chip.waits_for else 0
    at = shared.senders.get(flag, {})
    leavers = shared.own_copies.get(flag, set())
    if leavers and chip.number not in leavers:
        return f"a copy of its own that it never starts ({_chips(leavers)} did)"
    if not at:
        return "a signal that no chip ever sends"
    silent = {other.number for other in shared.chips} - set().union(*at.values()) - {chip.number}
    return _chips(silent, "or") if silent else f"more than {_chips(at.get(chip.number, set()))} sent"


def _so_far(shared: Shared, chip: ChipOfSlice) -> str:
    at = shared.senders.get(chip.waits_for.flag if chip.waits_for else 0, {})
    sent = [f"at chip {number} by {_chips(by)}" for number, by in sorted(at.items())]
    return f" (signalled so far {', '.join(sent)})" if sent else ""


def _chips(numbers: set[int], word: str = "and") -> str:
    *most, last = map(str, sorted(numbers)) if numbers else ("none",)
    return f"chips {', '.join(most)} {word} {last}" if most else f"chip {last}"


def _waiting(chip: ChipOfSlice) -> str:
    """What a chip waits for."""
    assert chip.waits_for is not None
    flag, least, address = chip.waits_for
    has = chip.engine.final_value(flag)
    op = chip.calls[-1][0] if chip.calls else "the top level"
    return (
        f"in {op} at {chip.where(address)} waits for {chip.addresses.flag_name(flag)} to reach {least}; "
        f"it is at {has}, {least - has} short"
    )
