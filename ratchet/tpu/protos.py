"""Messages of protocol buffers that no installed package has generated: declared at run time, from a table.

The only importer of ``google.protobuf``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

_SCALARS = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12, "uint32": 13,
    "sint64": 18,
}  # fmt: skip
_MESSAGE = 11


class Protos:
    """Messages of one package, in a pool of their own: the default one may hold another library's copy of the names."""

    def __init__(
        self, package: str, messages: Mapping[str, str], oneofs: Mapping[str, tuple[str, Sequence[str]]] | None = None
    ) -> None:
        """Declares messages in the syntax of proto3.

        Args:
            package: their package.
            messages: by name, ``"field number type, …"``. A type is a scalar or a message of this table; ``[]`` behind
                it makes it repeated, and ``map:X`` is a map from int64 to ``X``.
            oneofs: by message, the name of its oneof and the fields in it.
        """
        self._package = package
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        for name, fields in messages.items():
            message: Any = file.message_type.add(name=name)
            oneof, members = (oneofs or {}).get(name, ("", ()))
            if oneof:
                message.oneof_decl.add(name=oneof)
            for field in fields.split(", "):
                self._declare(message, *field.split(), one_of_many=field.split()[0] in members)
        pool: Any = descriptor_pool.DescriptorPool()
        pool.Add(file)
        # All classes now: one that is made while another thread already reads messages is not whole yet.
        types = ((name, pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages)
        self._classes = {name: message_factory.GetMessageClass(found) for name, found in types}

    def _declare(self, message: Any, field: str, number: str, kind: str, *, one_of_many: bool) -> None:
        base = kind.removesuffix("[]").removeprefix("map:")
        added = message.field.add(name=field, number=int(number), label=1 if kind == base else 3)
        if base in _SCALARS:
            added.type = _SCALARS[base]
        else:
            added.type = _MESSAGE
            added.type_name = f".{self._package}." + (self._entry(message, field, base) if kind[:4] == "map:" else base)
        if one_of_many:
            added.oneof_index = 0

    def _entry(self, message: Any, field: str, target: str) -> str:
        """Adds the nested type that the entries of a map have; returns its name."""
        name = "".join(part.capitalize() for part in field.split("_")) + "Entry"
        entry = message.nested_type.add(name=name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=_SCALARS["int64"])
        entry.field.add(name="value", number=2, label=1, type=_MESSAGE, type_name=f".{self._package}.{target}")
        return f"{message.name}.{name}"

    def new(self, name: str) -> Any:
        """An empty message."""
        return self._classes[name]()

    def parse(self, name: str, data: bytes) -> Any:
        """The message that ``data`` holds. Raises ValueError for bytes that are none."""
        message = self.new(name)
        try:
            message.ParseFromString(data)
        except DecodeError as error:
            raise ValueError(str(error)) from None
        return message
