"""HLO text -> values, for tests: XLA's own parser makes the proto that is read."""

from __future__ import annotations

from pathlib import Path

from jaxlib import _hlo  # type: ignore[attr-defined]

from ratchet.tpu.dump.files import OPTIMIZED
from ratchet.tpu.dump.hlo import HloModule, read_hlo
from ratchet.tpu.dump.layout import ArrayType


def proto_of(text: str) -> bytes:
    """A module's text, or the lines of an entry computation, as a serialised proto."""
    whole = text if text.startswith("HloModule") else f"HloModule m\n\nENTRY %main {{\n{text}\n}}\n"
    return bytes(_hlo.hlo_module_from_text(whole).as_serialized_hlo_module_proto())


def hlo_of(text: str) -> HloModule:
    """The same as values."""
    return read_hlo(proto_of(text), file="test")


def array_types(*texts: str) -> list[ArrayType]:
    """Types such as ``s32[5]{0:T(128)}``."""
    lines = [f"  %p{number} = {text} parameter({number})" for number, text in enumerate(texts)]
    module = hlo_of("\n".join([*lines, "  ROOT %t = () tuple()"]))
    return [op.types[0] for op in module.parameters()]


def write_hlo(folder: Path, text: str) -> None:
    """Where a compiled program's optimised HLO is expected."""
    (folder / OPTIMIZED).write_bytes(proto_of(text))
