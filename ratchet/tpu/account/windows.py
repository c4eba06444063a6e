"""Which windows a wait of the compiler's pipeline is for."""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.tpu.dump.instruction import Address, Instruction, Register, Value
from ratchet.tpu.dump.listing import Listing
from ratchet.values.place import Code, Place, SourceLine, Window, Windows

_ADDRESS_STEPS = 8
"""How far an address is followed back to the allocation that it is in."""


class WindowFlags:
    """The windows of a kernel that the compiler's pipeline copies, by the sync flags that signal their copies."""

    def __init__(self, listing: Listing) -> None:
        self._bundles = listing.bundles
        self._columns = listing.columns
        by_flag: dict[str, set[Window]] = {}
        for number in self._columns.with_opcode(lambda opcode: opcode.startswith("dma.")):
            instruction = self._columns.instruction(number)
            flag = self._allocation(instruction.named("dst_syncflagno"))
            buffer = listing.allocations.get(self._allocation(instruction.named("vmem")))
            if flag and buffer is not None and buffer.window is not None:
                by_flag.setdefault(flag, set()).add(buffer.window)
        self._of_flag = {flag: Windows(windows=tuple(sorted(own))) for flag, own in by_flag.items()}

    def _allocation(self, operand: Value | None) -> str:
        """The allocation that an address is made from, or ``""``."""
        if isinstance(operand, Address):
            if operand.allocation:
                return operand.allocation
            operand = operand.registers[0] if operand.registers else None
        maker = self._maker(operand.name) if isinstance(operand, Register) else None
        for _ in range(_ADDRESS_STEPS - 1):
            if maker is None:
                break
            if maker.form.allocations:
                return maker.form.allocations[0]
            maker = self._maker(next((value for value in maker.reads if value[0] == "s"), ""))
        return ""

    def _maker(self, value: str) -> Instruction | None:
        return self._columns.maker(value) if value.startswith("s") else None

    def place(self, address: int, where: Sequence[Place]) -> Place:
        """The place of a wait: its line, else the windows that arrive on its flag, else the pipeline."""
        for instruction, place in zip(self._bundles[address], where, strict=True):
            if instruction.opcode.startswith(("dma.done.wait", "vwait")):
                flag = self._allocation(instruction.operands[0].value)
                return place if isinstance(place, SourceLine) else self._of_flag.get(flag, place)
        return Code.PIPELINE
