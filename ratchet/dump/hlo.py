"""The optimised HLO text, as far as the schedule machine needs it: names, types, and which ops are identical."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

_ITEM_BITS = {
    "pred": 8, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "bf16": 16, "f16": 16,
    "s32": 32, "u32": 32, "f32": 32, "s64": 64, "u64": 64, "f64": 64,
    "f8e4m3fn": 8, "f8e5m2": 8, "f8e4m3b11fnuz": 8,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ArrayType:
    """``bf16[16384,128]{1,0:T(8,128)(2,1)S(1)}``, taken apart."""

    dtype: str
    shape: tuple[int, ...]
    minor_to_major: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...]
    space: int

    @property
    def item_bits(self) -> int:
        return _ITEM_BITS.get(self.dtype, 32)

    @property
    def may_steer(self) -> bool:
        """Whether the scalar unit can branch on its elements."""
        return self.dtype in _STEERING

    @property
    def padded_bytes(self) -> int:
        """Size as laid out, tile padding included."""
        physical = [self.shape[d] for d in reversed(self.minor_to_major)]
        if self.tiles:
            tile = self.tiles[0]
            physical = [1] * (len(tile) - len(physical)) + physical
            for i in range(1, len(tile) + 1):
                physical[-i] = -(-physical[-i] // tile[-i]) * tile[-i]
        return max(4, math.prod(physical) * self.item_bits // 8)


_TYPE = re.compile(r"(\w+)\[([\d,]*)\](?:\{([\d,]*)(?::((?:T(?:\([\d,*]+\))+)?)[^}]*?(?:S\((\d+)\))?[^}]*)?\})?")


def array_types(text: str) -> list[ArrayType]:
    """All array types in ``text``, in order: one for an array, several for a tuple."""
    found = []
    for dtype, dims, order, tiles, space in _TYPE.findall(text):
        shape = tuple(int(d) for d in dims.split(",") if d)
        minor = tuple(int(d) for d in order.split(",") if d) or tuple(reversed(range(len(shape))))
        parsed = tuple(
            tuple(1 if d == "*" else int(d) for d in tile.split(",")) for tile in re.findall(r"\(([\d,*]+)\)", tiles)
        )
        found.append(ArrayType(dtype=dtype, shape=shape, minor_to_major=minor, tiles=parsed, space=int(space or 0)))
    return found


def lay_out(values: np.ndarray, array: ArrayType) -> list[int]:
    """``values`` as the compiler lays them out: signed 32-bit words, tile padding as zeros.

    Raises:
        ValueError: if ``values`` has another shape than ``array``.
    """
    if values.shape != array.shape:
        raise ValueError(f"values have shape {values.shape}, the compiled program wants {array.shape}")
    physical = np.transpose(values, tuple(reversed(array.minor_to_major))) if values.ndim else values.reshape(1)
    for tile in array.tiles:  # each cuts the innermost dimensions that the one before it left: T(512)(128)(4,1)
        while physical.ndim < len(tile):
            physical = np.expand_dims(physical, 0)
        padding = [(0, 0)] * (physical.ndim - len(tile))
        padding += [(0, -n % t) for n, t in zip(physical.shape[-len(tile) :], tile, strict=True)]
        physical = np.pad(physical, padding)
        outer = physical.shape[: physical.ndim - len(tile)]
        split: list[int] = []
        for n, t in zip(physical.shape[-len(tile) :], tile, strict=True):
            split += [n // t, t]
        physical = physical.reshape(*outer, *split)
        base = len(outer)
        order = [*range(base), *range(base, base + 2 * len(tile), 2), *range(base + 1, base + 2 * len(tile), 2)]
        physical = physical.transpose(order)
    raw = np.ascontiguousarray(physical).tobytes()
    raw += b"\0" * (-len(raw) % 32)
    return [int(word) for word in np.frombuffer(raw, dtype="<i4")]


def rearranged(values: np.ndarray, source: ArrayType, target: ArrayType) -> np.ndarray | None:
    """What a ``bitcast`` from ``source`` to ``target`` makes of ``values``: the same bytes, read in another layout.

    None for elements of less than 32 bits in another shape or layout, which share words.
    """
    if (source.shape, source.minor_to_major) == (target.shape, target.minor_to_major):
        return values
    if source.item_bits != 32 or target.item_bits != 32:
        return None
    numbers = [1 + np.arange(math.prod(t.shape), dtype=np.int32).reshape(t.shape) for t in (source, target)]
    places = zip(*(lay_out(number, t) for number, t in zip(numbers, (source, target), strict=True)), strict=False)
    found = np.zeros(math.prod(target.shape), values.dtype)
    for of_source, of_target in places:  # 0 is padding
        if of_source and of_target:
            found[of_target - 1] = values.flat[of_source - 1]
    return found.reshape(target.shape)


def literal(op: HloOp) -> np.ndarray | None:
    """Values of a constant, if the text holds them (large ones are printed as ``{...}`` unless asked for)."""
    array = array_types(op.type_text)[0]
    words = op.operands[0].replace("true", "1").replace("false", "0").replace("{", " ").replace("}", " ")
    dtype = _STEERING.get(array.dtype)
    if op.opcode != "constant" or dtype is None:
        return None
    number = float if array.dtype == "f32" else int
    try:
        values = np.array([number(word) for word in words.replace(",", " ").split()], dtype)
    except ValueError:
        return None
    return values.reshape(array.shape) if values.size == math.prod(array.shape) else None


_STEERING: dict[str, type[np.generic]] = {
    "pred": np.bool_, "s8": np.int8, "u8": np.uint8, "s16": np.int16, "u16": np.uint16,
    "s32": np.int32, "u32": np.uint32, "f32": np.float32,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class HloOp:
    """One instruction."""

    name: str
    opcode: str
    type_text: str
    operands: tuple[str, ...]
    attributes: str
    computation: str
    is_root: bool


@dataclass(frozen=True, kw_only=True)
class HloModule:
    """Instructions of all computations by name."""

    ops: Mapping[str, HloOp]
    entry: str
    """Name of the entry computation."""

    def entry_ops(self) -> list[HloOp]:
        return [op for op in self.ops.values() if op.computation == self.entry]

    def parameters(self) -> list[HloOp]:
        """Parameters of the entry computation in order of their number."""
        found = [op for op in self.entry_ops() if op.opcode == "parameter"]
        return sorted(found, key=lambda op: int(op.operands[0]))

    def origin(self, name: str) -> HloOp:
        """The op that ``name`` is an unchanged copy of: itself, a parameter, a constant or what computed it."""
        op = self.ops[name]
        while op.opcode in ("copy", "copy-start", "copy-done", "bitcast") and op.operands[0] in self.ops:
            op = self.ops[op.operands[0]]
        return op

    def bitcasts(self, name: str) -> list[tuple[ArrayType, ArrayType]]:
        """The bitcasts between ``origin(name)`` and ``name`` in order of execution: from which type to which."""
        found, op = [], self.ops[name]
        while op is not self.origin(name):
            before = self.ops[op.operands[0]]
            if op.opcode == "bitcast":
                found.append((array_types(before.type_text)[0], array_types(op.type_text)[0]))
            op = before
        return found[::-1]

    def result_types(self) -> list[ArrayType]:
        for op in self.entry_ops():
            if op.is_root:
                return array_types(op.type_text)
        return []

    def result_is_tuple(self) -> bool:
        return any(op.is_root and op.type_text.startswith("(") for op in self.entry_ops())

    def fingerprint(self, name: str, depth: int = 0) -> str:
        """Equal for ops that compute the same on operands of the same types; the compiler dumps such ops once."""
        op = self.ops[name]
        operand_types = [self.ops[o].type_text if o in self.ops else o for o in op.operands]
        attributes = re.sub(r", (?:metadata|backend_config|sharding|frontend_attributes|control-predecessors)=\{.*", "",
                            op.attributes)  # fmt: skip
        called = re.findall(r"(?:calls|to_apply|body|condition)=%([\w.\-]+)", attributes)
        attributes = re.sub(r"=%[\w.\-]+", "=", attributes)
        inside = []
        if depth < 4:
            for computation in called:
                local: dict[str, int] = {}
                for inner in self.ops.values():
                    if inner.computation == computation:
                        local[inner.name] = len(local)
                        places = [str(local.get(o, o)) for o in inner.operands]
                        inside.append(f"{self.fingerprint(inner.name, depth + 1)}<{','.join(places)}>")
        return f"{op.opcode}|{op.type_text}|{operand_types}|{attributes}|{';'.join(inside)}"


_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_OP = re.compile(r"^\s+(ROOT )?%([\w.\-]+) = ")


def parse_hlo(text: str) -> HloModule:
    """Reads ``compiled.as_text()``. Lines that are no instruction are left out."""
    ops: dict[str, HloOp] = {}
    computation, entry = "", ""
    for line in text.splitlines():
        header = _COMPUTATION.match(line)
        if header:
            computation = header.group(2)
            if header.group(1):
                entry = computation
            continue
        match = _OP.match(line)
        if match is None:
            continue
        rest = line[match.end() :]
        type_text, rest = _type_and_rest(rest)
        opcode, _, rest = rest.partition("(")
        inside, attributes = _balanced(rest)
        inside = re.sub(r"/\*.*?\*/", "", inside)
        if opcode in ("constant", "parameter"):
            operands: tuple[str, ...] = (inside.strip(),)  # the literal, or the number
        else:
            operands = tuple(re.findall(r"%([\w.\-]+)", inside))
        ops[match.group(2)] = HloOp(
            name=match.group(2), opcode=opcode.strip(), type_text=type_text, operands=operands,
            attributes=attributes, computation=computation, is_root=bool(match.group(1)),
        )  # fmt: skip
    return HloModule(ops=ops, entry=entry)


def _type_and_rest(text: str) -> tuple[str, str]:
    if text.startswith("("):
        inside, rest = _balanced(text[1:])
        return f"({inside})", rest.strip()
    first, _, rest = text.partition(" ")
    return first, rest


def _balanced(text: str) -> tuple[str, str]:
    """Splits behind the parenthesis that closes one opened before ``text``."""
    depth = 1
    for match in re.finditer(r"[()]", text):
        depth += 1 if match.group() == "(" else -1
        if depth == 0:
            return text[: match.start()], text[match.end() :]
    return text, ""
