"""The listings of one program, translated: made once, executed by one machine or by all the machines of a slice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ratchet.tpu.chips import Chip
from ratchet.tpu.dump.files import Dumps
from ratchet.tpu.dump.hlo import HloModule
from ratchet.tpu.dump.listing import Listing
from ratchet.tpu.machine.addresses import Addresses
from ratchet.tpu.machine.inputs import Inputs
from ratchet.tpu.machine.interlocks import interlocked
from ratchet.tpu.machine.known import KnownMemory
from ratchet.tpu.machine.translate import Translated, translate


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


class Programs:
    """Translates listings on demand. All chips of a slice run the same code at the same addresses."""

    def __init__(self, dumps: Dumps, hlo: HloModule, compiler: str, chip: Chip) -> None:
        self._dumps = dumps
        self.hlo = hlo
        self.compiler = compiler
        self._chip = chip
        self._units: dict[str, Unit] = {}
        self.addresses = Addresses(
            Inputs(hlo, {}, KnownMemory(), chip.hbm_address_bytes).first_free, chip.hbm_address_bytes
        )

    def resolve(self, name: str) -> str:
        """The listing that an HLO instruction runs; see :meth:`ratchet.tpu.dump.files.Dumps.resolve`."""
        return self._dumps.resolve(name)

    def unit(self, name: str) -> Unit:
        """A listing with counts of its own, all zero.

        Raises:
            Refusal: SCHEDULE_UNKNOWN as :func:`ratchet.tpu.machine.translate.translate`.
        """
        if name not in self._units:
            self._units[name] = self._make(name, self._dumps.load(name))
        unit = self._units[name]
        return replace(unit, translated=unit.translated.fresh())

    def _make(self, name: str, listing: Listing) -> Unit:
        addresses = self.addresses.add(listing)
        delay_slots = self._chip.branch_delay_slots
        listing = interlocked(listing, extra=self._chip.permute_extra_cycles, delay_slots=delay_slots)
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
