"""The compiled module as XProf lists it, with its arrays in HBM: what the memory viewer reads.

The compiler keeps its own assignment to itself where it compiles ahead of time. So what is written is what is known:
every argument and result by its padded size, and one buffer for all temporaries together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ratchet.view.xplane import new_message

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
    """A serialised ``HloProto`` of a serialised module, renamed after ``title``, with its arrays in HBM."""
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
