"""The XSpace message and a small builder for its planes.

XProf ships readers of XSpace but no Python class for it, so the public message definition
(``xplane.proto`` of the XLA project) is restated here as a table of field numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Value = int | float | str | bytes
"""What a stat may hold."""

_PACKAGE = "tensorflow.profiler"
_INT64, _UINT64, _DOUBLE, _STRING, _BYTES, _MESSAGE = 3, 4, 1, 9, 12, 11  # FieldDescriptorProto.Type

# message -> (field, number, type or message name, repeated); "map:X" is a map from int64 to X.
_MESSAGES: dict[str, tuple[tuple[str, int, int | str, bool], ...]] = {
    "XSpace": (("planes", 1, "XPlane", True), ("warnings", 3, _STRING, True), ("hostnames", 4, _STRING, True)),
    "XPlane": (
        ("id", 1, _INT64, False),
        ("name", 2, _STRING, False),
        ("lines", 3, "XLine", True),
        ("event_metadata", 4, "map:XEventMetadata", True),
        ("stat_metadata", 5, "map:XStatMetadata", True),
        ("stats", 6, "XStat", True),
    ),
    "XLine": (
        ("id", 1, _INT64, False),
        ("name", 2, _STRING, False),
        ("timestamp_ns", 3, _INT64, False),
        ("events", 4, "XEvent", True),
        ("duration_ps", 9, _INT64, False),
        ("display_id", 10, _INT64, False),
        ("display_name", 11, _STRING, False),
    ),
    "XEvent": (
        ("metadata_id", 1, _INT64, False),
        ("offset_ps", 2, _INT64, False),
        ("duration_ps", 3, _INT64, False),
        ("stats", 4, "XStat", True),
    ),
    "XStat": (
        ("metadata_id", 1, _INT64, False),
        ("double_value", 2, _DOUBLE, False),
        ("uint64_value", 3, _UINT64, False),
        ("int64_value", 4, _INT64, False),
        ("str_value", 5, _STRING, False),
        ("bytes_value", 6, _BYTES, False),
    ),
    "XEventMetadata": (
        ("id", 1, _INT64, False),
        ("name", 2, _STRING, False),
        ("metadata", 3, _BYTES, False),
        ("display_name", 4, _STRING, False),
        ("stats", 5, "XStat", True),
    ),
    "XStatMetadata": (("id", 1, _INT64, False), ("name", 2, _STRING, False)),
    # Two that travel inside a stat's bytes. An enum and a module are written as a number and as bytes: the same wire.
    "MemoryAccessBreakdown": (("memory_accessed", 1, "MemoryAccessed", True),),
    "MemoryAccessed": (
        ("operation_type", 1, _INT64, False),
        ("memory_space", 2, _INT64, False),
        ("bytes_accessed", 3, _INT64, False),
    ),
    "HloProto": (("hlo_module", 1, _BYTES, False),),
}
# proto3 leaves a plain zero out but writes a oneof member that is zero; XProf distinguishes the two.
_ONEOFS = {"XEvent": ("data", ("offset_ps",)), "XStat": ("value", tuple(f[0] for f in _MESSAGES["XStat"][1:]))}


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
    """A pool of our own: the default one may hold another library's copy of these names."""
    file = descriptor_pb2.FileDescriptorProto(name="xplane.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        oneof, members = _ONEOFS.get(name, ("", ()))
        if oneof:
            message.oneof_decl.add(name=oneof)
        for field, number, kind, repeated in fields:
            added = message.field.add(name=field, number=number, label=3 if repeated else 1)
            if isinstance(kind, int):
                added.type = kind
            else:
                added.type = _MESSAGE
                target = kind.removeprefix("map:")
                if target != kind:
                    target = f"{name}.{_map_entry(message, field, target)}"
                added.type_name = f".{_PACKAGE}.{target}"
            if field in members:
                added.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def new_message(name: str) -> Any:
    """An empty message: ``XSpace``, ``HloProto`` or ``MemoryAccessBreakdown``."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))()


def _map_entry(message: Any, field: str, target: str) -> str:
    """Add the nested entry type that a proto map is made of; returns its name."""
    name = "".join(part.capitalize() for part in field.split("_")) + "Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=_INT64)
    entry.field.add(name="value", number=2, label=1, type=_MESSAGE, type_name=f".{_PACKAGE}.{target}")
    return name


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
        elif value < 0:
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
