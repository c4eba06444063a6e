"""The messages of a serialised HLO module, as far as they are read here.

No installed package has them generated, so they are declared at run time, with the field numbers of OpenXLA's
``hlo.proto`` and ``xla_data.proto``. Fields that are not declared are kept when a message is copied.
"""

from __future__ import annotations

import functools
from typing import Any

from ratchet.tpu.protos import Protos

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
    "stack_frames 17 StackFrames",
}


@functools.cache
def _protos() -> Protos:
    return Protos("ratchet.hlo", _MESSAGES)


def parse_module(data: bytes) -> Any:
    """A ``Module`` message. Raises ValueError for bytes that are none."""
    return _protos().parse("Module", data)
