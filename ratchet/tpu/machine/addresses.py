"""Where allocations live, and what the runtime has put into scalar memory before a program starts.

Allocations at fixed addresses are shared between programs by their address. All others get an address of their own:
a program only ever compares an address with others of the same allocation, and lifetimes need no modelling.
"""

from __future__ import annotations

from collections.abc import Mapping

from ratchet.tpu.dump.listing import Listing
from ratchet.tpu.dump.outline import NULL, PASSED_ON, SPARSE_CORE_DONE, Allocation

UNIT_BYTES = {"smem": 4, "sflag": 4, "vmem": 512, "cmem": 512}
"""Bytes per address step of the memories on the chip. Those of HBM are the chip's."""

GRANULES_PER_ADDRESS = UNIT_BYTES["vmem"] // 32
"""DMA granules per address step of VMEM, and per step of a strided copy."""

_FIRST = {"smem": 1 << 20, "sflag": 1 << 10, "vmem": 1 << 20, "cmem": 1 << 20}
"""First address for allocations without a fixed one: clear of all fixed addresses. A sync flag of another chip is
named by 13 bits."""

START_UP: dict[str, int | None] = {
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
    "output ptr": None,  # address of the outputs, set by the machine
    PASSED_ON: 0,  # only copied into descriptors
}
"""What the runtime stores at fixed scalar addresses before it starts a program, by the role of the allocation."""


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
                if allocation.space == "smem" and not (address in self.fixed_smem and allocation.role == NULL):
                    self.fixed_smem[address] = allocation  # the null pointer shares its address with the chip's id
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

    def flag(self, number: int) -> tuple[Allocation, int, str] | None:
        """A sync flag as the allocation that it belongs to, its index in that and the listing; None for no one's."""
        for start, end, file, allocation in self._flags:
            if start <= number < end:
                return allocation, number - start, file
        return None

    def flag_name(self, number: int) -> str:
        """A sync flag in words: the allocation it belongs to and what the compiler made that for."""
        known = self.flag(number)
        if known is None:
            return f"flag {number}"
        allocation, index, file = known
        which = f"[{index}]" if allocation.size_bytes >= 2 * UNIT_BYTES["sflag"] else ""
        return f"{allocation.name}{which} of {file} ({allocation.tag or 'no tag'})"

    def awaited_op(self, number: int) -> str:
        """The asynchronous op of the entry computation whose end a sync flag signals, or ``""``."""
        known = self.flag(number)
        return known[0].awaited_op if known else ""

    def prepared_op(self, number: int) -> str:
        """The op whose descriptors for the SparseCores a sync flag counts, or ``""``."""
        known = self.flag(number)
        return known[0].prepared_op if known else ""

    def start_up_value(self, allocation: Allocation, output: int, of_chip: Mapping[str, int]) -> int | None:
        """What the runtime stored there before the program started, or None if nothing is known.

        ``of_chip`` are the values that differ from chip to chip, by role.
        """
        if allocation.role in of_chip:
            return of_chip[allocation.role]
        if allocation.role not in START_UP:
            return None
        value = START_UP[allocation.role]
        return output if value is None else value
