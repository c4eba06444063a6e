"""The listings of one program, translated: made once, executed by one machine or by all the machines of a slice."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ratchet.dump.bundles import Listing
from ratchet.dump.dumps import Dumps
from ratchet.dump.hlo import HloModule
from ratchet.machine.inputs import Inputs
from ratchet.machine.known import KnownMemory
from ratchet.machine.places import Places
from ratchet.machine.translate import Translated, translate


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A translated listing and what is known of its callers' operands."""

    name: str
    translated: Translated
    operands: Mapping[int, tuple[str, str]]
    """Per operand: memory space (``""`` for a scalar passed by value) and ``input`` or ``output``."""
    is_kernel: bool
    places: Mapping[str, int]
    """Address per allocation, in units of its space."""


class Programs:
    """Translates listings on demand. All chips of a slice run the same code at the same addresses."""

    def __init__(self, dumps: Dumps, hlo: HloModule, compiler: str) -> None:
        self._dumps = dumps
        self._hlo = hlo
        self._compiler = compiler
        self._units: dict[str, Unit] = {}
        self.places = Places(Inputs(hlo, {}, KnownMemory()).first_free)

    def resolve(self, name: str) -> str:
        """The listing that an HLO instruction runs; see :meth:`ratchet.dump.dumps.Dumps.resolve`."""
        return self._dumps.resolve(name)

    def unit(self, name: str) -> Unit:
        """A listing with counts of its own, all zero.

        Raises:
            Refusal: SCHEDULE_UNKNOWN as :func:`ratchet.machine.translate.translate`.
        """
        if name not in self._units:
            self._units[name] = self._make(name, self._dumps.load(name))
        unit = self._units[name]
        return replace(unit, translated=replace(unit.translated, counts=[0] * len(unit.translated.counts)))

    def _make(self, name: str, listing: Listing) -> Unit:
        places = self.places.add(listing)
        translated = translate(
            listing, place=places.__getitem__, compiler=self._compiler, code_name=f"<schedule of {name}>"
        )
        operands = {}
        for instruction in itertools.chain.from_iterable(listing.bundles):
            if instruction.opcode.startswith("inlined_call_operand"):
                text = instruction.operands
                number = int(text.partition("index: ")[2].partition(",")[0])
                space = instruction.opcode.partition(".")[2]
                operands[number] = (
                    "" if space.startswith("<no") else space,
                    text.partition("kind: ")[2].partition(",")[0],
                )
        op = self._hlo.ops.get(name)
        is_kernel = op is not None and "tpu_custom_call" in op.attributes
        return Unit(name=name, translated=translated, operands=operands, is_kernel=is_kernel, places=places)
