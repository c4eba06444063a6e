"""The listings of one program made ready to run: allocations placed, waits of cross-lane units put in, translated.

Allocations at fixed addresses are shared between listings by their address. All others get an address of their own:
a program only ever compares an address with others of the same allocation, and lifetimes need no modelling.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ratchet.tpu.chips import CHIPS, Chip
from ratchet.tpu.chips.units import XLU_CYCLES, named_unit
from ratchet.tpu.dump.files import Dumps
from ratchet.tpu.dump.hlo import HloModule
from ratchet.tpu.dump.image import constant_offsets
from ratchet.tpu.dump.listing import Listing
from ratchet.tpu.dump.outline import NULL, PARAMETERS, PASSED_ON, SPARSE_CORE_DONE, Allocation
from ratchet.tpu.machine.elsewhere import elsewhere, is_kernel, refusal
from ratchet.tpu.machine.memory import UNIT_BYTES, Buffers
from ratchet.tpu.machine.tiles import Work, work
from ratchet.tpu.machine.translate import Translated, translate
from ratchet.values.status import Refusal, Status

_FIRST = {"smem": 1 << 20, "sflag": 1 << 10, "vmem": 1 << 20, "cmem": 1 << 20}
"""First address for allocations without a fixed one: clear of all fixed addresses. A sync flag of another chip is
named by 13 bits."""

OTHER_CORE = -1
"""In place of a sync flag: a wait for the word that the other core of a chip pushes."""

CONSTANT_BYTES = 512
"""Of each constant of the compiler's, what is read."""
_OUTPUT = "output ptr"
START_UP = {
    "rng seed": 0,  # no seed: the program skips seeding the random number generator
    "chip ID": 0,
    "core index": 0,
    "partition id location": 0,
    "replica id location": 0,
    "launch barrier id": 1,  # any number, the same on all chips of a slice
    "program id location": 0,  # only traced
    "run id low location": 1,  # not a multiple of 1024, at which a program would write trace records to the host
    "program descriptor state": 1,  # 1: loaded and ready; anything else skips the program
    "run id highl location": 0,
    "cached producer": 0,  # the queue of commands for the host is empty
    "iova base": 0,  # the address of that queue in the host's memory
    "producer host sync flag number": 0,
    "spec success addr": 0,  # nothing was prefetched for this program by the one before it
    "reloc base": 0,  # added to addresses of constants in HBM, which here are absolute
    PASSED_ON: 0,  # only copied into descriptors
}
"""What the runtime stores at fixed scalar addresses before it starts a program, by the role of the allocation."""


_ALIGNMENT = 1 << 20
"""HBM buffers are placed at multiples of this many bytes."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A translated listing and what is known of its callers' operands."""

    name: str
    translated: Translated
    operands: Mapping[int, tuple[str, str]]
    """Per operand: memory space (``""`` for a scalar passed by value) and ``input`` or ``output``."""
    is_kernel: bool
    addresses: Mapping[str, int]
    """Address per allocation, in units of its space."""


def _buffers(hlo: HloModule, hbm_address_bytes: int) -> Buffers:
    """Where those of a program are. A donated result lies where its parameter does: the program compares the two."""
    following = _ALIGNMENT // hbm_address_bytes

    def place(size_bytes: int) -> int:
        nonlocal following
        where = following
        following += -(-size_bytes // _ALIGNMENT) * _ALIGNMENT // hbm_address_bytes
        return where

    parameters = [place(sum(array.padded_bytes for array in op.types)) for op in hlo.parameters()]
    donated = {index[0] if index else 0: parameter for index, parameter in hlo.aliases}
    results = [
        parameters[donated[number]] if number in donated else place(array.padded_bytes)
        for number, array in enumerate(hlo.result.types)
    ]
    output = place(_ALIGNMENT) if hlo.result.is_tuple or not results else results[0]
    return Buffers(parameters=parameters, results=results, output=output, first_free=following)


class Addresses:
    """Addresses of all allocations of all listings of one program."""

    def __init__(self, first_hbm: int, hbm_address_bytes: int) -> None:
        self._unit_bytes = {**UNIT_BYTES, "hbm": hbm_address_bytes}
        self._next = {**_FIRST, "hbm": first_hbm}
        self._flags: list[tuple[int, int, str, Allocation]] = []
        self.fixed_smem: dict[int, Allocation] = {}
        self.sparse_core_flags: dict[int, int] = {}
        """Per SparseCore, the sync flag that says that a program of its is over."""

    def add(self, listing: Listing) -> dict[str, int]:
        """Address per allocation name of ``listing``, in units of its space."""
        addresses = {}
        for allocation in listing.allocations.values():
            unit = self._unit_bytes.get(allocation.space)
            if unit is None:
                continue  # its use will be refused by name
            if allocation.fixed and allocation.offset_bytes is not None:
                address = allocation.offset_bytes // unit
                # The null pointer shares its address with the chip's id, a guard without a role that of the parameters.
                if allocation.space == "smem" and not (address in self.fixed_smem and allocation.role in ("", NULL)):
                    self.fixed_smem[address] = allocation
            else:
                address = self._next[allocation.space]
                self._next[allocation.space] += -(-allocation.size_bytes // unit)
            addresses[allocation.name] = address
            if allocation.role.startswith(SPARSE_CORE_DONE):
                self.sparse_core_flags[int(allocation.role.removeprefix(SPARSE_CORE_DONE))] = address
            if allocation.space == "sflag":
                size = max(1, allocation.size_bytes // unit)
                self._flags.append((address, address + size, listing.file, allocation))
        return addresses

    def flag_name(self, number: int) -> str:
        """A sync flag in words: the allocation it belongs to and what the compiler made that for."""
        if number == OTHER_CORE:
            return "a word of the other core"
        for start, end, file, allocation in self._flags:
            if start <= number < end:
                which = f"[{number - start}]" if allocation.size_bytes >= 2 * UNIT_BYTES["sflag"] else ""
                return f"{allocation.name}{which} of {file} ({allocation.tag or 'no tag'})"
        return f"flag {number}"

    def flag(self, number: int) -> Allocation | None:
        """The allocation that a sync flag belongs to, if any."""
        return next((allocation for start, end, _, allocation in self._flags if start <= number < end), None)

    def awaited_op(self, number: int) -> str:
        """The asynchronous op of the entry computation whose end a sync flag signals, or ``""``."""
        known = self.flag(number)
        return known.awaited_op if known else ""


def read(dump_dir: Path, *, hlo: HloModule, chip: Chip, compiler: str, constants: bytes = b"") -> Programs:
    """The listings of a compiled program, for one run or several.

    Args:
        dump_dir: holds what the compiler wrote under :func:`ratchet.tpu.dump.files.dump_flags`, for this program alone;
            for a slice with the pass :data:`ratchet.tpu.dump.image.OFFSETS_PASS` besides.
        hlo: the optimised module. It says for which devices the program was compiled.
        chip: what it was compiled for.
        compiler: version of the compiler, for messages.
        constants: what :func:`ratchet.tpu.dump.image.constant_segment` reads in the executable of a program for a
            slice: collectives of XLA have their routing tables there.

    Raises:
        Refusal: SCHEDULE_UNKNOWN for a chip whose schedules are not known, and for dumps that cannot be read;
            NOT_MODELLED for a program with work on other units than TensorCores, or of which there is no code.
    """
    if not chip.schedules:
        known = ", ".join(name for name, other in CHIPS.items() if other.schedules)
        raise Refusal(
            Status.SCHEDULE_UNKNOWN,
            f"programs for {chip.name} are compiled, and executed for their values; their schedules are not modelled: "
            f"they count DMAs in other units. Modelled are {known}.",
        )
    dumps = Dumps(dump_dir, hlo, compiler)
    if parts := elsewhere(hlo, chip, dumps.has_code, dumps.has_tiles):
        raise refusal(hlo, parts, dumps.tokens)
    programs = Programs(dumps, hlo, compiler, chip)
    for name, offset in constant_offsets(dump_dir).items() if len(hlo.device_ids) > 1 else ():
        piece = constants[offset : offset + CONSTANT_BYTES]
        words = [piece[i : i + 4] for i in range(0, len(piece), 4)]
        programs.constants[name] = [int.from_bytes(word, "little", signed=True) for word in words]
    return programs


class Programs:
    """Translates listings on demand. All chips of a slice run the same code at the same addresses."""

    def __init__(self, dumps: Dumps, hlo: HloModule, compiler: str, chip: Chip) -> None:
        self._dumps = dumps
        self.hlo = hlo
        self.compiler = compiler
        self.chip = chip
        self.constants: dict[str, list[int]] = {}
        """Words of the compiler's own constants, by allocation of the top level."""
        self._units: dict[str, Unit] = {}
        self._sparse: dict[str, list[Work] | None] = {}
        self.buffers = _buffers(hlo, chip.hbm_address_bytes)
        self.addresses = Addresses(self.buffers.first_free, chip.hbm_address_bytes)

    def resolve(self, name: str) -> str:
        """The listing that an HLO instruction runs; see :meth:`ratchet.tpu.dump.files.Dumps.resolve`."""
        return self._dumps.resolve(name)

    def sparse_work(self, name: str) -> list[Work] | None:
        """Of a kernel for the SparseCores: what each of them does. None for what is no such kernel.

        Raises:
            Refusal: as :func:`ratchet.tpu.machine.tiles.work`.
        """
        if name not in self._sparse:
            section = self._dumps.tiles(name) if name in self.hlo.ops and is_kernel(self.hlo, name) else None
            called = self._dumps.tokens.name(name)[:60]
            self._sparse[name] = work(section, self.chip, called) if section else None
        return self._sparse[name]

    def unit(self, name: str) -> Unit:
        """A listing with counts of its own, all zero.

        Raises:
            Refusal: SCHEDULE_UNKNOWN as :func:`ratchet.tpu.machine.translate.translate`.
        """
        if name not in self._units:
            self._units[name] = self._make(name, self._dumps.load(name))
        unit = self._units[name]
        return replace(unit, translated=unit.translated.fresh())

    def start_up(self, of_chip: Mapping[str, int]) -> dict[int, int]:
        """What the runtime stored in scalar memory, as far as listings were loaded.

        ``of_chip`` are the values that differ from chip to chip, by role. Pointers to the parameters lie downwards from
        that of the first.
        """
        known = {**START_UP, _OUTPUT: self.buffers.output, **of_chip}
        fixed = self.addresses.fixed_smem.items()
        words = {address: known[allocation.role] for address, allocation in fixed if allocation.role in known}
        for address in [address for address, allocation in fixed if allocation.role == PARAMETERS]:
            for number, where in enumerate(self.buffers.parameters):
                words.setdefault(address - number, where)
        return words

    def _make(self, name: str, listing: Listing) -> Unit:
        addresses = self.addresses.add(listing)
        delay_slots = self.chip.branch_delay_slots
        listing = interlocked(listing, extra=self.chip.permute_extra_cycles, delay_slots=delay_slots)
        translated = translate(
            listing,
            addresses=addresses,
            compiler=self.compiler,
            code_name=f"<schedule of {name}>",
            delay_slots=delay_slots,
        )
        operands = {}
        for number in listing.columns.with_form(lambda form: form.argument is not None):
            instruction = listing.columns.instruction(number)
            argument = instruction.form.argument
            assert argument is not None
            operands[argument.number] = (instruction.space, argument.kind)
        is_kernel = name in self.hlo.launches
        return Unit(name=name, translated=translated, operands=operands, is_kernel=is_kernel, addresses=addresses)


class _Held(NamedTuple):
    """The last operation on a unit: its bundle, the cycle it issued, and by how much it is longer than scheduled."""

    address: int
    cycle: int
    extra: int

    def free(self, address: int) -> int:
        """The cycle from which on the bundle at ``address`` may use the unit."""
        return self.cycle + min(XLU_CYCLES, address - self.address) + self.extra


def interlocked(listing: Listing, *, extra: int, delay_slots: int) -> Listing:
    """``listing`` with an empty bundle for every cycle in which a cross-lane unit holds up the next bundle.

    The compiler leaves :data:`ratchet.tpu.chips.units.XLU_CYCLES` between two operations on one cross-lane unit. A
    permutation of lanes (``vperm``, ``vrot.lane``) holds its unit for ``extra`` cycles more, and the bundle with the
    next operation on that unit waits, with all behind it. ``docs/model.md`` says which timings show it. Distances
    across branches mean nothing, and delay slots stay behind their branch: neither is made longer.
    """
    columns = listing.columns
    units = {opcode: unit for opcode in columns.opcodes if (unit := named_unit(opcode)).startswith("xlu")}
    used: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for number in columns.with_opcode(lambda opcode: opcode in units and not opcode.startswith("vpop")):
        opcode = columns.opcodes[columns.opcode[number]]
        permutes = opcode.partition(".")[0] in ("vperm", "vrot")
        used[int(columns.bundle[number])].append((units[opcode], extra * permutes))
    branches = {int(columns.bundle[number]): target for number, target in columns.branches.items()}
    leaders = {*branches.values(), *(address + delay_slots + 1 for address in branches)}
    delayed = {address + slot for address in branches for slot in range(1, delay_slots + 1)}
    empty = np.zeros(len(listing.bundles), np.int64)
    put_in = 0
    held: dict[str, _Held] = {}
    for address in sorted(used.keys() | leaders):
        if address in leaders:
            held = {}
        own = used.get(address, ())
        if own and address not in delayed:
            free = max((held[unit].free(address) for unit, _ in own if unit in held), default=0)
            empty[address] = max(0, free - address - put_in)
            put_in += int(empty[address])
        held |= {unit: _Held(address, address + put_in, longer) for unit, longer in own}
    return listing.later(empty) if put_in else listing
