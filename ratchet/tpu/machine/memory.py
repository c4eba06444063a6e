"""What a program's memories hold: scalar memory word by word, of HBM and VMEM a few ranges that are known.

Known are inputs that steer control flow and tables of the compiler's. They are followed through DMAs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ratchet.tpu.dump.hlo import HloModule, HloOp
from ratchet.tpu.dump.layout import lay_out, rearranged
from ratchet.tpu.machine.dma import GRANULE_BYTES
from ratchet.tpu.machine.words import Unknown, UnknownSteers
from ratchet.values.status import Refusal, Status

ScalarInputs = Mapping[int | str, np.ndarray]
"""Values by number of the entry parameter, or by ``"name:i"``: operand ``i`` of HLO instruction ``name``, with one
dimension more where it is another one in each run."""

UNIT_BYTES = {"smem": 4, "sflag": 4, "vmem": 512, "cmem": 512}
"""Bytes per address step of the memories on the chip. Those of HBM are the chip's."""
GRANULES_PER_ADDRESS = UNIT_BYTES["vmem"] // GRANULE_BYTES
"""DMA granules per address step of VMEM, and per step of a strided copy."""
WORDS_PER_GRANULE = GRANULE_BYTES // UNIT_BYTES["smem"]
SUBLANES = 8
"""Rows of 512 B that one vector store reaches."""

_TRACED_BYTES = 4096
"""Parameters up to this size are followed through copies even if not given, to name them in a refusal."""


_STORED = partial(Unknown, "what a program stored")


class ScalarMemory(dict[int, object]):
    """Words by address. A load of one that nothing wrote is unknown: the compiler loads ahead of the last step, too."""

    def __init__(self, fixed: Container[int] = ()) -> None:
        super().__init__()
        self._fixed = fixed
        """Words that the runtime writes: of one that is not known a load is a KeyError."""

    def __missing__(self, word: int) -> object:
        if word in self._fixed:
            raise KeyError(word)
        return Unknown(f"scalar memory word {word}, never written", given=True)


class Memory:
    """The memories of one machine. HBM and VMEM are counted in DMA granules, scalar memory in words."""

    def __init__(self, hbm_address_bytes: int, fixed: Container[int] = ()) -> None:
        self.smem = ScalarMemory(fixed)
        self._per_address = {"hbm": hbm_address_bytes // GRANULE_BYTES}
        """Granules per address step, where that is not the one of VMEM."""
        self._ranges: list[tuple[str, int, list[object]]] = []

    def __bool__(self) -> bool:
        """Whether anything of HBM or VMEM is known."""
        return bool(self._ranges)

    def granule(self, space: str, address: int) -> int:
        """Number of the granule at an address of HBM or VMEM."""
        return address * self._per_address.get(space, GRANULES_PER_ADDRESS)

    def write(self, space: str, granule: int, words: list[object]) -> None:
        """``words`` from ``granule`` on, of HBM or VMEM; what was known there is forgotten."""
        self._forget(space, granule, -(-len(words) // WORDS_PER_GRANULE))
        self._ranges.append((space, granule, words))

    def hold(self, space: str, address: object, words: list[object]) -> None:
        """``words`` from an address on, of any memory; one that is not known was overwritten before."""
        if isinstance(address, int) and space == "smem":
            self.smem.update(zip(itertools.count(address), words, strict=False))
        elif isinstance(address, int):
            self.write(space, self.granule(space, address), words)

    def read(self, space: str, start: int, granules: int) -> list[object] | None:
        """The words of a range, or None if none of them is known; unknown ones are :class:`Unknown`."""
        count = granules * WORDS_PER_GRANULE
        if space == "smem":
            return [self.smem.get(start + i, Unknown("scalar memory")) for i in range(count)]
        for s, first, words in self._ranges:
            skip = (start - first) * WORDS_PER_GRANULE
            if s == space and 0 <= skip < len(words):
                held = words[skip : skip + count]
                return held + [Unknown(f"{space} behind a known array")] * (count - len(held))
        return None

    def copy(
        self, source: str, start: object, target: str, stop: object, granules: int, unknown: Callable[[], Unknown]
    ) -> None:
        """Follows a DMA. ``unknown`` is what it brings to scalar memory where its source is not known."""
        words = self.read(source, start, granules) if isinstance(start, int) else None
        if words is None or not isinstance(stop, int):
            self.overwrite(target, stop, granules, unknown)
        elif target == "smem":
            self.smem.update(zip(range(stop, stop + len(words)), words, strict=True))
        else:
            self.write(target, stop, words)

    def stored(self, address: object) -> None:
        """A vector store of up to ``SUBLANES`` rows: what was known there is not any more."""
        if self:
            start = address * GRANULES_PER_ADDRESS if isinstance(address, int) else address
            self.overwrite("vmem", start, SUBLANES * GRANULES_PER_ADDRESS)

    def overwrite(self, space: str, start: object, granules: int, unknown: Callable[[], Unknown] = _STORED) -> None:
        """Something unknown is written there; where the address is unknown, it may be anywhere in that memory.

        Raises:
            UnknownSteers: for an unknown address in scalar memory.
        """
        if isinstance(start, Unknown) and space == "smem":
            raise UnknownSteers(start.origin)
        if not isinstance(start, int):
            self._ranges = [known for known in self._ranges if known[0] != space]
        elif space == "smem":
            self.smem.update(dict.fromkeys(range(start, start + granules * WORDS_PER_GRANULE), unknown()))
        else:
            self._forget(space, start, granules)

    def _forget(self, space: str, start: int, granules: int) -> None:
        self._ranges = [
            (s, first, words)
            for s, first, words in self._ranges
            if s != space or first >= start + granules or first + len(words) // WORDS_PER_GRANULE <= start
        ]


@dataclass(frozen=True, kw_only=True)
class Buffers:
    """Where the runtime puts parameters and results in HBM, by address."""

    parameters: Sequence[int]
    results: Sequence[int]
    output: int
    """Of the result, or of a table of the results' addresses."""
    first_free: int


class Inputs:
    """What is known of the inputs of a program before it runs."""

    def __init__(self, hlo: HloModule, scalar_inputs: ScalarInputs) -> None:
        self._hlo = hlo
        self._scalar_inputs = scalar_inputs
        self._operands: dict[tuple[str, int], list[list[object]] | None] = {}
        """Words of each, for all runs of its kernel or for each."""

    def put(self, memory: Memory, where: Buffers) -> None:
        """Writes to HBM what it holds when the program starts."""
        for number, (op, address) in enumerate(zip(self._hlo.parameters(), where.parameters, strict=True)):
            if number in self._scalar_inputs:
                words = _words(f"entry parameter {number}", self._scalar_inputs[number], op)
            elif len(op.types) == 1 and op.types[0].padded_bytes <= _TRACED_BYTES and op.types[0].may_steer:
                origin = Unknown(f"entry parameter {number} (give scalar_inputs[{number}])", given=True)
                words = [origin] * (op.types[0].padded_bytes // 4)
            else:
                continue
            memory.write("hbm", memory.granule("hbm", address), words)
        if self._hlo.result.is_tuple:
            table: list[object] = [*where.results, *[0] * (128 - len(where.results))]
            memory.write("hbm", memory.granule("hbm", where.output), table)

    def operand_words(self, name: str, number: int, run: int) -> list[object] | None:
        """Words of an operand as laid out, if they are known: given, or a copy of a parameter or a constant.

        ``run`` counts how often the instruction ran before.
        """
        key = (name, number)
        if key not in self._operands:
            self._operands[key] = self._find_operand(name, number)
        known = self._operands[key]
        if known is not None and 1 < len(known) <= run:
            raise Refusal(
                Status.SCHEDULE_UNKNOWN,
                f"operand {number} of {name} is given for {len(known)} runs, and it runs more often",
            )
        return known if known is None else known[run if len(known) > 1 else 0]

    def _find_operand(self, name: str, number: int) -> list[list[object]] | None:
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
        if values is None:
            return None
        runs = values if np.ndim(values) > len(operand.types[0].shape) else [values]
        return [_words(f"operand {number} of {name}", one, operand) for one in runs]


def operand_unknown(name: str, number: int) -> Unknown:
    """An operand whose values nobody gave."""
    return Unknown(f"operand {number} of {name} (give scalar_inputs['{name}:{number}'])", given=True)


def _words(what: str, values: np.ndarray, op: HloOp) -> list[object]:
    array = op.types[0]
    try:
        return list(lay_out(np.asarray(values), array))
    except ValueError as error:
        raise Refusal(Status.USAGE, f"scalar_inputs for {what} ({array}): {error}.") from None
