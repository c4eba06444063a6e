"""The XSpace message, a small builder for its planes, and the compiled module as XProf lists it.

XProf ships readers of XSpace but no Python class for it, so the public message definition
(``xplane.proto`` of the XLA project) is restated here as a table of field numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ratchet.tpu.protos import Protos

_SIGNED = 1 << 63

Value = int | float | str | bytes
"""What a stat may hold."""

_VALUES = "double_value 2 double, uint64_value 3 uint64, int64_value 4 int64, str_value 5 string, bytes_value 6 bytes"
_MESSAGES = {
    "XSpace": "planes 1 XPlane[], warnings 3 string[], hostnames 4 string[]",
    "XPlane": "id 1 int64, name 2 string, lines 3 XLine[], event_metadata 4 map:XEventMetadata, "
    "stat_metadata 5 map:XStatMetadata, stats 6 XStat[]",
    "XLine": "id 1 int64, name 2 string, timestamp_ns 3 int64, events 4 XEvent[], duration_ps 9 int64, "
    "display_id 10 int64, display_name 11 string",
    "XEvent": "metadata_id 1 int64, offset_ps 2 int64, duration_ps 3 int64, stats 4 XStat[]",
    "XStat": f"metadata_id 1 int64, {_VALUES}",
    "XEventMetadata": "id 1 int64, name 2 string, metadata 3 bytes, display_name 4 string, stats 5 XStat[]",
    "XStatMetadata": "id 1 int64, name 2 string",
    # Those that travel inside a stat's bytes. An enum and a module are written as a number and as bytes: the same wire.
    "MemoryAccessBreakdown": "memory_accessed 1 MemoryAccessed[]",
    "MemoryAccessed": "operation_type 1 int64, memory_space 2 int64, bytes_accessed 3 int64",
    "HloProto": "hlo_module 1 bytes, buffer_assignment 3 BufferAssignment",
    "HloModule": "name 1 string",
    "BufferAssignment": "logical_buffers 1 LogicalBuffer[], buffer_allocations 3 BufferAllocation[], "
    "heap_simulator_traces 4 HeapTrace[]",
    "LogicalBuffer": "id 1 int64, size 2 int64, defined_at 3 DefinedAt, color 4 int64",
    "DefinedAt": "shape_index 3 int64[], instruction_id 4 int64",
    "BufferAllocation": "index 1 int64, size 2 int64, is_entry_computation_parameter 5 bool, parameter_number 6 int64, "
    "maybe_live_out 7 bool, color 8 int64, assigned 9 Assigned[]",
    "Assigned": "logical_buffer_id 1 int64, offset 2 int64, size 3 int64",
    "HeapTrace": "events 1 HeapEvent[], whole_module_simulation 2 bool, buffer_allocation_index 3 int64",
    "HeapEvent": "kind 1 int64, buffer_id 2 int64, computation_name 3 string, instruction_name 4 string",
}
# proto3 leaves a plain zero out but writes a oneof member that is zero; XProf distinguishes the two.
_ONEOFS = {
    "XEvent": ("data", ["offset_ps"]),
    "XStat": ("value", [field.split()[0] for field in _VALUES.split(", ")]),
}


@functools.cache
def _protos() -> Protos:
    return Protos("tensorflow.profiler", _MESSAGES, _ONEOFS)


def new_message(name: str) -> Any:
    """An empty message of the table above: ``XSpace``, ``HloProto`` or ``MemoryAccessBreakdown``."""
    return _protos().new(name)


class PlaneBuilder:
    """One plane of an XSpace under construction; names are stored once, as the format wants it."""

    def __init__(self, space: Any, name: str) -> None:
        self.plane = space.planes.add(id=len(space.planes), name=name)
        self._stats: dict[str, int] = {}
        self._events: dict[object, int] = {}

    def stat(self, target: Any, name: str, value: Value) -> None:
        """Attach a named value to a plane, an event or an event's metadata."""
        key = self._stats.get(name)
        if key is None:
            key = self._stats[name] = len(self._stats) + 1
            entry = self.plane.stat_metadata[key]
            entry.id, entry.name = key, name
        stat = target.stats.add(metadata_id=key)
        if isinstance(value, bytes):
            stat.bytes_value = value
        elif isinstance(value, str):
            stat.str_value = value
        elif isinstance(value, float):
            stat.double_value = value
        elif value < _SIGNED:  # some of XProf's readers look at the signed member alone
            stat.int64_value = value
        else:
            stat.uint64_value = value

    def event_type(self, name: str, display_name: str = "", stats: Mapping[str, Value] | None = None) -> int:
        """Id of an event type with these names and stats; made on first use."""
        stats = stats or {}
        key = (name, display_name, tuple(stats.items()))
        if key not in self._events:
            number = self._events[key] = len(self._events) + 1
            entry = self.plane.event_metadata[number]
            entry.id, entry.name, entry.display_name = number, name, display_name
            for stat, value in stats.items():
                self.stat(entry, stat, value)
        return self._events[key]

    def line(self, name: str, display_name: str, duration_ps: int) -> Any:
        """A new line; lines are shown in the order in which they are made."""
        number = len(self.plane.lines) + 1
        return self.plane.lines.add(
            id=number, display_id=number, name=name, display_name=display_name, duration_ps=duration_ps
        )


_ALLOC, _FREE = 0, 1


class BufferKind(Enum):
    """What a buffer holds."""

    ARGUMENT = "argument"
    RESULT = "result"
    TEMPORARY = "temporary"
    """Everything else, together."""


@dataclass(frozen=True, kw_only=True)
class HbmBuffer:
    """Some bytes of HBM."""

    kind: BufferKind
    size_bytes: int
    """As laid out, tile padding included."""
    instruction: int
    """Id of the instruction of the module that defines it; for temporaries the one whose result they lead to."""
    shape_index: tuple[int, ...] = ()
    """Which leaf of the instruction's tuple."""
    number: int = 0
    """Of an argument: which."""


def module_name(title: str) -> str:
    """What XProf calls the module of a program, and a file beside the trace: letters, digits, ``_`` and ``-``."""
    return "modelled_" + "".join(c if c.isascii() and (c.isalnum() or c == "-") else "_" for c in title)


def hlo_proto(module: bytes, title: str, buffers: Sequence[HbmBuffer] = ()) -> bytes:
    """A serialised ``HloProto`` of a serialised module, renamed after ``title``: what the memory viewer reads.

    The compiler keeps its own assignment of memory to itself where it compiles ahead of time. So what is written is
    every argument and result by its padded size, and one buffer for all temporaries together.
    """
    named = new_message("HloModule")
    named.name = module_name(title)
    proto = new_message("HloProto")
    proto.hlo_module = module + named.SerializeToString()  # of a field that is there twice, the last counts
    for number, buffer in enumerate(buffers, start=1):
        _add(proto.buffer_assignment, buffer, number)
    return bytes(proto.SerializeToString(deterministic=True))


def _add(assignment: Any, buffer: HbmBuffer, number: int) -> None:
    logical = assignment.logical_buffers.add(id=number, size=buffer.size_bytes)
    logical.defined_at.instruction_id = buffer.instruction
    logical.defined_at.shape_index.extend(buffer.shape_index)
    allocation = assignment.buffer_allocations.add(
        index=number,
        size=buffer.size_bytes,
        is_entry_computation_parameter=buffer.kind is BufferKind.ARGUMENT,
        parameter_number=buffer.number,
        maybe_live_out=buffer.kind is BufferKind.RESULT,
    )
    allocation.assigned.add(logical_buffer_id=number, size=buffer.size_bytes)
    if buffer.kind is BufferKind.TEMPORARY:  # XProf takes the peak of what is not an argument or result from a trace
        trace = assignment.heap_simulator_traces.add(whole_module_simulation=True, buffer_allocation_index=number)
        for kind in (_ALLOC, _FREE):
            trace.events.add(kind=kind, buffer_id=number, instruction_name="temporaries, all together")
