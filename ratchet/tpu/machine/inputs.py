"""Where parameters and results lie in HBM, and which of the program's values are known before it runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ratchet.tpu.dump.hlo import HloModule, HloOp
from ratchet.tpu.dump.layout import lay_out, rearranged
from ratchet.tpu.machine.dma import GRANULE_BYTES
from ratchet.tpu.machine.known import KnownMemory
from ratchet.tpu.machine.unknown import Unknown
from ratchet.values.status import Refusal, Status

ScalarInputs = Mapping[int | str, np.ndarray]
"""Values by number of the entry parameter, or by ``"name:i"``: operand ``i`` of HLO instruction ``name``."""

_ALIGNMENT = 1 << 20
"""HBM buffers are placed at multiples of this many bytes."""

_TRACED_BYTES = 4096
"""Parameters up to this size are followed through copies even if not given, to name them in a refusal."""


class Inputs:
    """HBM as it is when the program starts."""

    def __init__(self, hlo: HloModule, scalar_inputs: ScalarInputs, known: KnownMemory, hbm_address_bytes: int) -> None:
        self._address_bytes, per_address = hbm_address_bytes, hbm_address_bytes // GRANULE_BYTES
        self._hlo = hlo
        self._scalar_inputs = scalar_inputs
        self._operands: dict[tuple[str, int], list[object] | None] = {}
        self._next = _ALIGNMENT // self._address_bytes
        self.parameters: list[int] = []
        """Address of every entry parameter."""
        for number, op in enumerate(hlo.parameters()):
            types = op.types
            where = self._place(sum(t.padded_bytes for t in types))
            self.parameters.append(where)
            if number in scalar_inputs:
                words = _words(f"entry parameter {number}", scalar_inputs[number], op)
                known.write("hbm", where * per_address, words)
            elif len(types) == 1 and types[0].padded_bytes <= _TRACED_BYTES and types[0].may_steer:
                origin = Unknown(f"entry parameter {number} (give scalar_inputs[{number}])", given=True)
                known.write("hbm", where * per_address, [origin] * (types[0].padded_bytes // 4))
        results = [self._place(t.padded_bytes) for t in hlo.result.types]
        if hlo.result.is_tuple:
            # The program finds the addresses of its results in a table.
            self.output = self._place(_ALIGNMENT)
            table: list[object] = [*results, *[0] * (128 - len(results))]
            known.write("hbm", self.output * per_address, table)
        else:
            self.output = results[0] if results else self._place(_ALIGNMENT)
        self.first_free = self._next
        """First HBM address behind parameters and results."""

    def _place(self, size_bytes: int) -> int:
        place = self._next
        self._next += -(-size_bytes // _ALIGNMENT) * _ALIGNMENT // self._address_bytes
        return place

    def operand_words(self, name: str, number: int) -> list[object] | None:
        """Words of an operand as laid out, if they are known: given, or a copy of a parameter or a constant."""
        key = (name, number)
        if key not in self._operands:
            self._operands[key] = self._find_operand(name, number)
        return self._operands[key]

    def _find_operand(self, name: str, number: int) -> list[object] | None:
        op = self._hlo.ops.get(name)
        if op is None or number >= len(op.operands) or op.operands[number] not in self._hlo.ops:
            return None
        operand = self._hlo.ops[op.operands[number]]
        if len(operand.types) != 1:
            return None
        values = self._scalar_inputs.get(f"{name}:{number}")
        if values is None:
            origin = self._hlo.origin(operand.name)
            if origin.opcode == "constant":
                values = origin.literal
            elif origin.parameter is not None and origin.computation == self._hlo.entry:
                values = self._scalar_inputs.get(origin.parameter)
            for source, target in self._hlo.bitcasts(operand.name):
                values = None if values is None else rearranged(np.asarray(values), source, target)
        return None if values is None else _words(f"operand {number} of {name}", values, operand)


def operand_unknown(name: str, number: int) -> Unknown:
    """An operand whose values nobody gave."""
    return Unknown(f"operand {number} of {name} (give scalar_inputs['{name}:{number}'])", given=True)


def _words(what: str, values: np.ndarray, op: HloOp) -> list[object]:
    array = op.types[0]
    try:
        return list(lay_out(np.asarray(values), array))
    except ValueError as error:
        raise Refusal(Status.USAGE, f"scalar_inputs for {what} ({array}): {error}.") from None
