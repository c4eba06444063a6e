"""A compiled program's HLO as values, read from its serialised proto: nothing in a name or a string can add to it."""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ratchet.tpu.dump.layout import STEERING, ArrayType
from ratchet.tpu.protos import Protos
from ratchet.values.status import Refusal, Status

_MESSAGES: dict[str, str] = {
    "Tile": "dimensions 1 int64[]",
    "Layout": "minor_to_major 1 int64[], tiles 6 Tile[], memory_space 8 int64",
    "Shape": "element_type 2 int32, dimensions 3 int64[], tuple_shapes 4 Shape[], layout 5 Layout",
    "Literal": "shape 1 Shape, preds 2 bool[], u8s 3 bytes, s32s 4 int32[], s64s 5 int64[], u32s 6 uint32[], "
    "u64s 7 uint64[], f32s 8 float[], f64s 9 double[], s8s 15 bytes, u16s 16 bytes, s16s 17 bytes",
    "Metadata": "op_name 2 string, stack_frame_id 15 int32",
    "Location": "file_name_id 1 int32, line 3 int32",
    "Frame": "file_location_id 1 int32",
    "StackFrames": "file_names 1 string[], file_locations 3 Location[], stack_frames 4 Frame[]",
    "Slice": "start 1 int64, limit 2 int64, stride 3 int64",
    "Instruction": "name 1 string, opcode 2 string, shape 3 Shape, metadata 7 Metadata, literal 8 Literal, "
    "parameter_number 9 int64, slice_dimensions 17 Slice[], custom_call_target 28 string, id 35 int64, "
    "operand_ids 36 int64[], control_predecessor_ids 37 int64[], called_computation_ids 38 int64[], sharding 40 bytes, "
    "backend_config 43 bytes, frontend_attributes 68 bytes, async_execution_thread 79 string",
    "Computation": "name 1 string, instructions 2 Instruction[], id 5 int64, root_id 6 int64",
    "Alias": "output_index 1 int64[], parameter_number 2 int64, parameter_index 3 int64[], kind 4 int32",
    "Aliases": "entries 1 Alias[]",
    "Devices": "ids 1 int64[]",
    "DeviceAssignment": "replica_count 1 int32, computation_count 2 int32, computations 3 Devices[]",
    "Module": "name 1 string, entry_computation_name 2 string, computations 3 Computation[], "
    "entry_computation_id 6 int64, input_output_alias 8 Aliases, device_assignment 15 DeviceAssignment, "
    "stack_frames 17 StackFrames",
}
"""What is read of OpenXLA's ``hlo.proto`` and ``xla_data.proto``. No installed package has them generated."""

KERNEL = "tpu_custom_call"
"""Target of the custom call that is a Mosaic kernel."""

_SPARSE_CORE = {
    "device_type": ("DEVICE_TYPE_SPARSECORE",),
    "compute_type": ("COMPUTE_TYPE_TILE", "COMPUTE_TYPE_SCALAR"),
}
"""What the configuration of a kernel for the SparseCores says; libtpu 0.0.50.1 leaves the first out."""
HOST_OPCODES = frozenset({"infeed", "outfeed", "send", "send-done", "recv", "recv-done"})
_HOST_TARGETS = ("callback", "Callback", "host_compute", "xla_ffi")

_DTYPES = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16", 11: "f32",
    12: "f64", 14: "opaque", 15: "c64", 16: "bf16", 17: "token", 18: "c128", 19: "f8e5m2", 20: "f8e4m3fn", 21: "s4",
    22: "u4", 23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 26: "s2", 27: "u2", 28: "f8e4m3", 29: "f8e3m4",
    30: "s1", 31: "u1", 32: "f4e2m1fn", 33: "f8e8m0fnu", 34: "buffer",
}  # fmt: skip
"""Numbers of OpenXLA's ``PrimitiveType``."""
_TUPLE = 13

_LITERALS = {"pred": "preds", "s8": "s8s", "u8": "u8s", "s16": "s16s", "u16": "u16s", "s32": "s32s", "u32": "u32s",
             "f32": "f32s"}  # fmt: skip
"""Field of a literal by dtype."""

_NOT_COMPUTED = ("name", "metadata", "id", "operand_ids", "control_predecessor_ids", "called_computation_ids",
                 "sharding", "frontend_attributes", "literal")  # fmt: skip
"""Fields of an instruction that do not change what it computes, or are compared in another way."""


@dataclass(frozen=True, kw_only=True)
class HloOp:
    """One instruction."""

    name: str
    opcode: str
    """``fusion``, ``custom-call``, ``copy-start``…"""
    types: tuple[ArrayType, ...]
    """One for an array, one per leaf for a tuple."""
    is_tuple: bool
    operands: tuple[str, ...]
    """Names."""
    computation: str
    is_root: bool
    called: tuple[str, ...] = ()
    """Computations: the body of a fusion, of a loop…"""
    parameter: int | None = None
    """Of a parameter: its number."""
    target: str = ""
    """Of a custom call: what is called."""
    thread: str = ""
    """Of an asynchronous operation: who runs it; ``""`` for the TensorCore."""
    backend_config: bytes = b""
    """JSON; ``b""`` where the compiler wrote none."""
    op_name: str = ""
    """What JAX calls the operation that it comes from, in its scopes; for messages only."""
    place: tuple[str, int] | None = field(default=None, compare=False)
    """File and line that it comes from; None where the compiler made it. For messages only."""
    number: int = field(default=0, compare=False)
    """Its number in the module."""
    cut: tuple[tuple[int, int], ...] = ()
    """Of a slice: first index and stride of each dimension."""
    literal: np.ndarray | None = field(default=None, compare=False)
    """Of a constant: its values if they may steer, else None."""
    identity: bytes = field(default=b"", repr=False)
    """All else that it computes by, serialised."""

    @property
    def is_kernel(self) -> bool:
        """Whether this is a Mosaic kernel."""
        return self.opcode == "custom-call" and self.target == KERNEL

    @property
    def is_of_sparse_cores(self) -> bool:
        """Whether this is a kernel of the SparseCores."""
        return self.is_kernel and any(self.config.get(key) in values for key, values in _SPARSE_CORE.items())

    @property
    def calls_host(self) -> bool:
        """Whether it exchanges data with the host or runs code there."""
        return self.opcode in HOST_OPCODES or any(part in self.target for part in _HOST_TARGETS)

    @functools.cached_property
    def config(self) -> Mapping[str, Any]:
        """``backend_config``, decoded. Raises ValueError for one that is no JSON object."""
        config = json.loads(self.backend_config or b"{}")
        if not isinstance(config, dict):
            raise ValueError(f"the backend_config of {self.name} is no JSON object")
        return config

    @property
    def module_sha256(self) -> str:
        """Of a kernel: the digest of its serialised Mosaic module. Raises ValueError where there is none."""
        try:
            body = base64.b64decode(self.config["custom_call_config"]["body"], validate=True)
        except (KeyError, TypeError, binascii.Error):
            raise ValueError(f"the kernel {self.name} holds no Mosaic module") from None
        return hashlib.sha256(body).hexdigest()


@dataclass(frozen=True, kw_only=True)
class HloModule:
    """Instructions of all computations by name."""

    ops: Mapping[str, HloOp]
    entry: str
    """Name of the entry computation."""
    device_ids: tuple[int, ...] = (0,)
    """The device at each place of the mesh that it was compiled for."""
    aliases: tuple[tuple[tuple[int, ...], int], ...] = ()
    """Results that share memory with a parameter: index of the result in the output tuple, number of the parameter."""

    @functools.cached_property
    def by_computation(self) -> Mapping[str, Sequence[HloOp]]:
        """Instructions of each computation, in order."""
        members: dict[str, list[HloOp]] = {}
        for op in self.ops.values():
            members.setdefault(op.computation, []).append(op)
        return members

    @functools.cached_property
    def _users(self) -> Mapping[str, Sequence[HloOp]]:
        users: dict[str, list[HloOp]] = {}
        for op in self.ops.values():
            for operand in dict.fromkeys(op.operands):
                users.setdefault(operand, []).append(op)
        return users

    def users(self, op: HloOp) -> Sequence[HloOp]:
        """Instructions that read ``op``."""
        return self._users.get(op.name, ())

    def operands(self, op: HloOp) -> list[HloOp]:
        """Instructions that ``op`` reads."""
        return [self.ops[name] for name in op.operands]

    def entry_ops(self) -> Sequence[HloOp]:
        """Instructions of the entry computation."""
        return self.by_computation.get(self.entry, ())

    @functools.cached_property
    def launches(self) -> Mapping[str, HloOp]:
        """Live kernels by the instruction that launches each: itself, or the fusion of it with what makes its operands.

        The compiler removed whatever does not reach an output.
        """
        around = {
            computation: op.name for op in self.ops.values() if op.opcode == "fusion" for computation in op.called
        }
        return {around.get(op.computation, op.name): op for op in self.ops.values() if op.is_kernel}

    def kernels(self) -> tuple[str, ...]:
        """Names of the instructions that launch a kernel."""
        return tuple(self.launches)

    def launched_operand(self, launch: str, number: int) -> int | None:
        """Which operand of the instruction ``launch`` is operand ``number`` of its kernel; None if it is fused."""
        kernel = self.launches[launch]
        if kernel.name == launch:
            return number
        return self.ops[kernel.operands[number]].parameter

    def slices(self, launch: str) -> dict[int, int]:
        """Numbers of a fused kernel's operands, results behind them, to those of ``launch``: what they are slices of.

        Those that the fusion makes of something else are left out.
        """
        kernel, found = self.launches[launch], dict[int, int]()
        for number, operand in enumerate(self.operands(kernel)):
            op = operand
            while op.opcode in ("bitcast", "dynamic-slice"):
                op = self.ops[op.operands[0]]
            if op.parameter is not None:
                found[number] = op.parameter
        op, users = kernel, self.users(kernel)
        while len(users) == 1 and users[0].operands.index(op.name) == _LIES_IN_RESULT.get(users[0].opcode):
            op, users = users[0], self.users(users[0])
        if op.is_root and len(kernel.types) == 1:
            found[len(kernel.operands)] = len(self.ops[launch].operands)
        return found

    def parameters(self) -> list[HloOp]:
        """Parameters of the entry computation in order of their number."""
        return sorted((op for op in self.entry_ops() if op.parameter is not None), key=lambda op: op.parameter or 0)

    def origin(self, name: str) -> HloOp:
        """The op that ``name`` is an unchanged copy of: itself, a parameter, a constant or what computed it."""
        op = self.ops[name]
        while op.opcode in ("copy", "copy-start", "copy-done", "bitcast"):
            op = self.ops[op.operands[0]]
        return op

    def bitcasts(self, name: str) -> list[tuple[ArrayType, ArrayType]]:
        """The bitcasts between ``origin(name)`` and ``name`` in order of execution: from which type to which."""
        changes, op = [], self.ops[name]
        while op is not self.origin(name):
            before = self.ops[op.operands[0]]
            if op.opcode == "bitcast":
                changes.append((before.types[0], op.types[0]))
            op = before
        return changes[::-1]

    @property
    def result(self) -> HloOp:
        """The root of the entry computation."""
        return next(op for op in self.entry_ops() if op.is_root)

    def fingerprint(self, name: str) -> str:
        """Equal for ops that compute the same on operands of the same types; the compiler dumps such ops once."""
        return hashlib.sha256(self._identity(name, depth=0)).hexdigest()

    def _identity(self, name: str, depth: int) -> bytes:
        op = self.ops[name]
        parts = [op.identity, repr(op.types).encode(), *(repr(operand.types).encode() for operand in self.operands(op))]
        if op.literal is not None:
            parts.append(op.literal.tobytes())
        if depth < _DEEPEST:
            for computation in op.called:
                local: dict[str, int] = {}
                for inner in self.by_computation.get(computation, ()):
                    local[inner.name] = len(local)
                    places = [local.get(operand, -1) for operand in inner.operands]
                    parts.append(self._identity(inner.name, depth + 1) + repr(places).encode())
        return hashlib.sha256(b"".join(len(part).to_bytes(8, "little") + part for part in parts)).digest()


_LIES_IN_RESULT = {"bitcast": 0, "dynamic-update-slice": 1}
"""Of instructions that change nothing but where something is, the number of the operand that it is."""
_DEEPEST = 4
"""Computations within computations that are compared."""


@functools.cache
def _protos() -> Protos:
    return Protos("ratchet.hlo", _MESSAGES)


def parse_module(data: bytes) -> Any:
    """A ``Module`` message. Raises ValueError for bytes that are none."""
    return _protos().parse("Module", data)


@functools.lru_cache(maxsize=2)
def read_hlo(data: bytes, *, file: str) -> HloModule:
    """Reads a serialised ``HloModuleProto``; the last two are kept, for several steps of a verdict read the same.

    Args:
        data: the bytes.
        file: where they are from, for messages.

    Raises:
        Refusal: SCHEDULE_UNKNOWN for bytes that are no such proto, or one that contradicts itself.
    """
    try:
        return _module(parse_module(data))
    except ValueError as error:
        message = f"{file} does not read as an HLO module: {error}. Compile again."
        raise Refusal(Status.SCHEDULE_UNKNOWN, message) from None


def _module(message: Any) -> HloModule:
    computations = {computation.id: computation.name for computation in message.computations}
    ops: dict[str, HloOp] = {}
    for computation in message.computations:
        names = {instruction.id: instruction.name for instruction in computation.instructions}
        for instruction in computation.instructions:
            if instruction.name in ops:
                raise ValueError(f"two instructions are called {instruction.name!r}")
            try:
                ops[instruction.name] = _op(instruction, computation, names, computations, message.stack_frames)
            except KeyError as error:
                raise ValueError(f"{instruction.name} refers to number {error}, which there is not") from None
    entry = computations.get(message.entry_computation_id)
    if entry is None:
        raise ValueError("it has no entry computation")
    devices = [devices.ids[0] for devices in message.device_assignment.computations if devices.ids]
    return HloModule(
        ops=ops,
        entry=entry,
        device_ids=tuple(devices) or (0,),
        aliases=tuple((tuple(e.output_index), e.parameter_number) for e in message.input_output_alias.entries),
    )


def _op(
    message: Any, computation: Any, names: Mapping[int, str], computations: Mapping[int, str], frames: Any
) -> HloOp:
    opcode = message.opcode
    types = tuple(_types(message.shape, message.name))
    identity = type(message)()
    identity.CopyFrom(message)
    for name in _NOT_COMPUTED:
        identity.ClearField(name)
    if opcode != "custom-call":  # there it holds the kernel; elsewhere the compiler's own choices
        identity.ClearField("backend_config")
    literal = _literal(message.literal, types[0]) if opcode == "constant" and types else None
    if opcode == "constant" and literal is None:
        identity.literal.CopyFrom(message.literal)
    return HloOp(
        name=message.name,
        opcode=opcode,
        types=types,
        is_tuple=message.shape.element_type == _TUPLE,
        operands=tuple([names[number] for number in message.operand_ids]),
        computation=computation.name,
        is_root=message.id == computation.root_id,
        called=tuple([computations[number] for number in message.called_computation_ids]),
        parameter=message.parameter_number if opcode == "parameter" else None,
        target=message.custom_call_target,
        thread=message.async_execution_thread,
        backend_config=bytes(message.backend_config),
        op_name=message.metadata.op_name,
        place=_place(frames, message.metadata.stack_frame_id),
        number=message.id,
        cut=tuple((one.start, one.stride) for one in message.slice_dimensions),
        literal=literal,
        identity=identity.SerializeToString(deterministic=True),
    )


def _place(frames: Any, number: int) -> tuple[str, int] | None:
    """File and line of a stack frame; all numbers count from 1, and 0 is none."""
    if not 0 < number <= len(frames.stack_frames):
        return None
    place = frames.stack_frames[number - 1].file_location_id
    if not 0 < place <= len(frames.file_locations):
        return None
    location = frames.file_locations[place - 1]
    if not 0 < location.file_name_id <= len(frames.file_names):
        return None
    return frames.file_names[location.file_name_id - 1], location.line


def _types(shape: Any, name: str) -> list[ArrayType]:
    if shape.element_type == _TUPLE:
        return [leaf for part in shape.tuple_shapes for leaf in _types(part, name)]
    dtype = _DTYPES.get(shape.element_type)
    dimensions, layout = tuple(shape.dimensions), shape.layout
    minor_to_major = tuple(layout.minor_to_major) or tuple(reversed(range(len(dimensions))))
    if dtype is None or any(d < 0 for d in dimensions) or sorted(minor_to_major) != list(range(len(dimensions))):
        raise ValueError(f"{name} has an impossible type")
    # A tile dimension that says "combine" is negative there.
    tiles = tuple(tuple(1 if d < 0 else d for d in tile.dimensions) for tile in layout.tiles)
    if any(d == 0 for tile in tiles for d in tile):
        raise ValueError(f"{name} has a tile of size 0")
    return [
        ArrayType(dtype=dtype, shape=dimensions, minor_to_major=minor_to_major, tiles=tiles, space=layout.memory_space)
    ]


def _literal(literal: Any, array: ArrayType) -> np.ndarray | None:
    """Values of a constant; None for a dtype that cannot steer."""
    dtype = STEERING.get(array.dtype)
    if dtype is None:
        return None
    raw = getattr(literal, _LITERALS[array.dtype])
    values = np.frombuffer(raw, np.dtype(dtype).newbyteorder("<")) if isinstance(raw, bytes) else np.array(raw, dtype)
    if values.size != math.prod(array.shape):
        return None
    return values.astype(dtype).reshape(array.shape)
