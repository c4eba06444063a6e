"""A program on a slice: one machine per chip, run together over the links; two where a program runs on two cores.

All chips start at cycle 0. Each has its own memories, sync flags and HBM queue; they have nothing in common but what
they send each other. So it is with the cores of a chip, which have equal parts of its HBM's bandwidth.

How the compiler names another chip (libtpu 0.0.42.1 and 0.0.51): a signal's operand is flag + (2 + core << 14) +
(chip << 17); a copy's ``overrides`` are chip + (1 << 14), with 2 + core from bit 26 on or nothing there, and the
flag it moves at the other end has 2 + core in the bits from 13 on. One that stays on its chip may have 2 + core alone.
v5e and v6e have one core, number 0; a tpu7x has two, each a device, and a v5p two that run one program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import NamedTuple

from ratchet.tpu.chips import Chip
from ratchet.tpu.dump.files import TOP
from ratchet.tpu.dump.outline import CONSTANT
from ratchet.tpu.machine import deadlock
from ratchet.tpu.machine.deadlock import Signals, Stuck
from ratchet.tpu.machine.dma import GRANULE_BYTES, GeneralDma
from ratchet.tpu.machine.links import Interleaving, Links
from ratchet.tpu.machine.machine import Machine
from ratchet.tpu.machine.memory import UNIT_BYTES, ScalarInputs
from ratchet.tpu.machine.programs import OTHER_CORE, START_UP, Programs, Unit
from ratchet.tpu.machine.record import Record, Run, Waited
from ratchet.tpu.machine.translate import Translated
from ratchet.tpu.machine.words import NotExecutable, Unknown
from ratchet.values.omission import LinkModel, OpenSemaphore, Unmodelled
from ratchet.values.status import Refusal

BETWEEN_CORES_CYCLES = 36
"""From a push of one core until the other one has it: the distance at which the compiler sets push and pop."""

_DUMMY = 0
"""A flag that nobody waits for."""
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
    """By the compiler's logical id; both cores of a chip that runs a program on two, one after the other."""
    signals: Signals = field(default_factory=Signals)


class Told(NamedTuple):
    """A word that one core of a chip pushed for the other."""

    time: int
    word: object


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
        """``number`` is the core's in the slice; ``scalar_inputs`` are by mesh index."""
        chip = programs.chip
        self.device = number // chip.cores
        """The compiler's logical id."""
        self.place = programs.hlo.device_ids.index(self.device)
        """In the mesh."""
        self.called = self.device if len(programs.hlo.device_ids) > 1 else number
        """In messages: a chip, or a core of one that is alone."""
        self._of_a_chip = chip.cores * chip.devices
        start_up = {
            "chip ID": number // self._of_a_chip,
            "core index": number % self._of_a_chip,
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
        self.told_at: list[Told] = []
        """What this core pushed for the other one of its chip."""
        self._heard = 0
        """How often it met it."""

    def execute(self) -> Record:
        self._begin(self._unit(TOP))
        record = super().execute()
        return replace(
            record,
            chip_index=self.device,
            place=self.place,
            sent_bytes=self._sent_bytes,
            launch_cycles=self._launch_cycles,
        )

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

    # --- the other core ---

    def tell(self, now: int, word: object) -> None:
        self.told_at.append(Told(now, word))

    def meet(self, now: int, address: int) -> object:
        other, number = self._chip(self.number ^ 1), self._heard
        self._heard += 1

        def heard() -> float:
            told = other.told_at[number : number + 1]
            return max(now, told[0].time + BETWEEN_CORES_CYCLES) if told else inf

        self.waits_for = Wait(OTHER_CORE, number + 1, address)
        self._shared.order.until(self.number, heard)
        self.waits_for = None
        self.met = int(heard())
        if self.met > now:
            wait = Waited(address, OTHER_CORE, remote=False)
            self._steps.waited(self._stack[-1].name, wait, self.met - now)
            self.engine.waited_for_core(now, self.met)
        return other.told_at[number].word

    def _start_for_both(
        self, now: int, source: str, target: str, granules: int, flags: tuple[int, int], piece: int
    ) -> None:
        flag, other = flags
        core = other >> 13
        if core != _CORE_0 + (self.number ^ 1) % self._of_a_chip:
            raise NotExecutable(f"a copy to both cores with the flags {flag:#x} and {other:#x}, of unknown meaning")
        self._shared.order.before(self.number, now)
        self.engine.shared_by(1)  # the other core reads nothing meanwhile
        done = self.engine.start(now, source, target, granules, flag, piece)
        self.engine.shared_by(self._programs.chip.cores)
        self._deliver(self._chip(self.number ^ 1), done, other & _FLAG_OF_COPY, granules)

    # --- other chips ---

    def _on_this_chip(self, word: int) -> int:
        inside = word & (1 << 17) - 1
        return inside if word >> 17 == self.number // self._of_a_chip and self.sparse.named(inside) else word

    def _signal_chip(self, now: int, word: int, amount: int) -> None:
        chip, core, flag = word >> 17, (word >> 14 & 7) - _CORE_0, word & _FLAG_OF_SIGNAL
        if not 0 <= core < self._of_a_chip:
            raise NotExecutable(f"a signal to {word:#x}: core {core} of a chip with {self._of_a_chip}")
        other = self._chip(chip * self._of_a_chip + core)
        self._shared.order.before(self.number, now)
        arrival = float(now)
        if other.device != self.device:
            arrival = self._shared.links.send(now, self.device, other.device, 0).arrival
        elif other is not self:
            arrival += BETWEEN_CORES_CYCLES
        self._deliver(other, arrival, flag, amount)

    def _sends(self, copy: GeneralDma) -> bool:
        if not copy.overrides:
            return False
        own = _CORE_0 + self.number % self._of_a_chip << 26
        if copy.overrides == own and not copy.flag >> 13:  # names no chip: XLA's reductions fetch their operands so
            self._copy_here(copy, copy.flag)
            return True
        core, above = (copy.flag >> 13) - _CORE_0, copy.overrides >> 14
        if above not in _above(core, self._programs.chip) or not 0 <= core < self._of_a_chip:
            raise NotExecutable(
                f"a copy with overrides {copy.overrides:#x} and flag {copy.flag:#x}, of unknown meaning"
            )
        if copy.source_flag >> 16 not in _AT_THE_SOURCE:
            raise NotExecutable(f"a copy whose source has the flag {copy.source_flag:#x}, of unknown meaning")
        copy = copy._replace(source_flag=copy.source_flag & _FLAG_OF_SIGNAL)
        other = self._chip((copy.overrides & _CHIP) * self._of_a_chip + core)
        flag = copy.flag & _FLAG_OF_COPY
        self._shared.order.before(self.number, copy.now)
        if other is self:
            self._copy_here(copy, flag)
        elif other.device == self.device:
            self._copy_across(copy, other, flag)
        else:
            self._copy_there(copy, other, flag)
            other._written(copy, self.number)
        return True

    def _copy_across(self, copy: GeneralDma, other: ChipOfSlice, flag: int) -> None:
        """A copy to the other core of the chip, with what is known of its words."""
        done = self.engine.start(copy.now, copy.source, copy.target, copy.granules, _DUMMY)
        self.engine.arrive(done, copy.source_flag, copy.granules, remote=True)
        self._signalled.add(copy.source_flag)
        self._deliver(other, done + BETWEEN_CORES_CYCLES, flag, copy.granules)
        other._written(copy, self.number)
        words = self.memory.read(copy.source, copy.start, copy.granules) if isinstance(copy.start, int) else None
        if words is not None and copy.target == "smem":
            other.memory.hold("smem", copy.stop, words)

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
        message = self._shared.links.send(copy.now, self.device, other.device, copy.granules)
        late = self.engine.latency if "hbm" in (copy.source, copy.target) else 0.0
        self.engine.arrive(message.left, copy.source_flag, copy.granules, remote=True)
        self._signalled.add(copy.source_flag)
        self._shared.signals.own_copies[copy.source_flag].add(self.called)
        self._deliver(other, message.arrival + late, flag, copy.granules)
        if copy.target == "hbm":
            other.engine.carry(copy.granules, writes=True)
        self._sent_bytes += message.size_bytes

    def _deliver(self, other: ChipOfSlice, time: float, flag: int, amount: int) -> None:
        other.engine.arrive(time, flag, amount, remote=other is not self)
        other._signalled.add(flag)
        self._shared.signals.senders[flag][other.called].add(self.called)

    def _chip(self, number: int) -> ChipOfSlice:
        if not 0 <= number < len(self._shared.chips):
            raise NotExecutable(f"chip {number} is addressed, but the slice has {len(self._shared.chips)}")
        return self._shared.chips[number]

    def open_semaphores(self) -> list[OpenSemaphore]:
        """Sync flags that moved by traffic between chips and are not back at 0."""
        left = {flag: self.engine.final_value(flag) for flag in self._signalled}
        return [OpenSemaphore(name=self.addresses.flag_name(flag), value=n) for flag, n in left.items() if n]


def _above(core: int, chip: Chip) -> tuple[int, ...]:
    """What may be above the chip in a copy's overrides, from bit 14 on, for a core of it."""
    named = 1 + (_CORE_0 + core << 12)  # 2 + core from bit 26 on
    in_launch_check = 1 if chip.devices == 1 else 1 + (1 + core << 10)  # nothing, or 1 + core from bit 24
    across = named + (1 << 15)  # between the two cores that run one program
    return (named, in_launch_check, across) if chip.cores > 1 else (named, in_launch_check)


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
    chip, devices = programs.chip, len(programs.hlo.device_ids)
    ici = chip.ici(devices)
    links, count = Links(ici, chip.clock_hz), devices * chip.cores

    def ahead(one: int, other: int) -> float:
        return BETWEEN_CORES_CYCLES if one // chip.cores == other // chip.cores else links.hop_cycles

    order = Interleaving(count, ahead, lambda: _deadlock(shared))
    shared = Shared(links=links, order=order)
    for number in range(count):
        shared.chips.append(ChipOfSlice(shared, number, programs, scalar_inputs, take_undecided=take_undecided))
    records: dict[int, Record] = {}

    def work(chip: ChipOfSlice) -> None:
        records[chip.number] = chip.execute()

    order.run([partial(work, chip) for chip in shared.chips])
    link_model = (LinkModel(link_bytes_per_s=ici.link_bytes_per_s, hop_s=ici.hop_s, source=ici.source),)
    used, messages = links.use(), (*links.log.first, *links.log.last)
    cores = [
        replace(
            records[core.number],
            messages=messages,
            more_messages=links.log.count - len(messages),
            link_busy_cycles=max(link.busy_cycles for link in used),
            not_modelled=(
                *records[core.number].not_modelled,
                *(link_model if devices > 1 else ()),
                *core.open_semaphores(),
            ),
        )
        for core in shared.chips
    ]
    if devices == 1:
        return Run(chips=(_slower(cores),))
    each = [_slower(cores[first : first + chip.cores]) for first in range(0, count, chip.cores)]
    return Run(chips=tuple(each), links=used)


def _slower(cores: Sequence[Record]) -> Record:
    """Of the cores of one chip the first that waits least for others: at their last meeting the other waits for it."""
    slower = max(cores, key=lambda one: one.cycles - one.memory.core_wait_cycles - one.memory.remote_wait_cycles)
    return replace(slower, beside=tuple(one for one in cores if one is not slower))


def _deadlock(shared: Shared) -> Refusal:
    """All machines wait, and nothing is under way."""
    waiting = [(chip, chip.waits_for) for chip in shared.chips if chip.waits_for is not None]
    # A core that waits for the other one is not at fault, but where both do.
    waiting = [(chip, wait) for chip, wait in waiting if wait.flag != OTHER_CORE] or waiting
    several = len({chip.device for chip in shared.chips}) > 1
    return deadlock.refusal(
        "chip" if several else "core",
        {chip.called for chip in shared.chips},
        [Stuck(number=chip.called, flag=wait.flag, waiting=_waiting(chip, wait)) for chip, wait in waiting],
        {chip.called for chip in shared.chips if chip.waits_for is None},
        shared.signals,
    )


def _waiting(chip: ChipOfSlice, wait: Wait) -> str:
    """What a chip waits for."""
    flag, least, address = wait
    has = chip.engine.final_value(flag)
    op = chip.calls[-1][0] if chip.calls else "the top level"
    return (
        f"in {op} at {chip.where(address)}: waiting for {chip.addresses.flag_name(flag)} to reach {least}; "
        f"it is at {has}, {least - has} short"
    )
