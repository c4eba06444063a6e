"""The messages of a serialised HLO module, as far as they are read here. The only importer of protocol buffers for HLO.

No installed package has them generated, so they are declared at run time, with the field numbers of OpenXLA's
``hlo.proto`` and ``xla_data.proto``. Fields that are not declared are kept when a message is copied.
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

_PACKAGE = "ratchet.hlo"
_SCALARS = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
}
_MESSAGE = 11

# Name, number and type of each field; a type with [] is repeated.
_MESSAGES: dict[str, str] = {
    "Tile": "dimensions 1 int64[]",
    "Layout": "minor_to_major 1 int64[], tiles 6 Tile[], memory_space 8 int64",
    "Shape": "element_type 2 int32, dimensions 3 int64[], tuple_shapes 4 Shape[], layout 5 Layout",
    "Literal": "shape 1 Shape, preds 2 bool[], u8s 3 bytes, s32s 4 int32[], s64s 5 int64[], u32s 6 uint32[], "
    "u64s 7 uint64[], f32s 8 float[], f64s 9 double[], s8s 15 bytes, u16s 16 bytes, s16s 17 bytes",
    "Metadata": "op_name 2 string",
    "Instruction": "name 1 string, opcode 2 string, shape 3 Shape, metadata 7 Metadata, literal 8 Literal, "
    "parameter_number 9 int64, custom_call_target 28 string, id 35 int64, operand_ids 36 int64[], "
    "control_predecessor_ids 37 int64[], called_computation_ids 38 int64[], sharding 40 bytes, "
    "backend_config 43 bytes, frontend_attributes 68 bytes",
    "Computation": "name 1 string, instructions 2 Instruction[], id 5 int64, root_id 6 int64",
    "Alias": "output_index 1 int64[], parameter_number 2 int64, parameter_index 3 int64[], kind 4 int32",
    "Aliases": "entries 1 Alias[]",
    "Devices": "ids 1 int64[]",
    "DeviceAssignment": "replica_count 1 int32, computation_count 2 int32, computations 3 Devices[]",
    "Module": "name 1 string, entry_computation_name 2 string, computations 3 Computation[], "
    "entry_computation_id 6 int64, input_output_alias 8 Aliases, device_assignment 15 DeviceAssignment, "
    "stack_frames 17 bytes",
}


@functools.cache
def _pool() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="ratchet_hlo.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields.split(", "):
            own, number, kind = field.split()
            base = kind.removesuffix("[]")
            added = message.field.add(name=own, number=int(number), label=3 if kind != base else 1)
            if base in _SCALARS:
                added.type = _SCALARS[base]  # type: ignore[assignment]
            else:
                added.type, added.type_name = _MESSAGE, f".{_PACKAGE}.{base}"  # type: ignore[assignment]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[attr-defined]
    return pool


def parse_module(data: bytes) -> Any:
    """A ``Module`` message. Raises ValueError for bytes that are none."""
    message = message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.Module"))()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(str(error)) from None
    return message
