"""Where the operations of a compiled program come from: the author's source line and JAX's name. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ratchet.tpu.dump.proto import parse_module
from ratchet.values import SourceLine
from ratchet.values.status import Refusal, Status
from ratchet.values.tokens import SOURCE_FILE, TokenTable

_WRAPPERS = ("jit(call)", "call_exported", "jit(program)", "call")
"""Scopes that exporting puts around every name."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where one HLO instruction comes from. Both are the author's, and untrusted."""

    name: str
    """JAX's name of the operation that XLA took for the whole, in its scopes: ``jit(block)/dot_general``."""
    source: SourceLine | None
    """None where the compiler made it, or the program has no places."""


def origins(data: bytes, tokens: TokenTable, *, file: str) -> Mapping[str, Origin]:
    """The origin of every instruction that has one, by its name.

    Args:
        data: a serialised ``HloModuleProto``.
        tokens: what the names and places in it stand for.
        file: where the bytes are from, for messages.

    Raises:
        Refusal: SCHEDULE_UNKNOWN for bytes that are no such proto.
    """
    try:
        module = parse_module(data)
    except ValueError as error:
        raise Refusal(Status.SCHEDULE_UNKNOWN, f"{file} does not read as an HLO module: {error}") from None
    return {
        instruction.name: Origin(
            name=_readable(tokens.explain(instruction.metadata.op_name)),
            source=_source(module.stack_frames, instruction.metadata.stack_frame_id, tokens),
        )
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.metadata.op_name
    }


def _readable(name: str) -> str:
    """Without the scopes of exporting, and without the primitive that stands behind its own name."""
    parts = [part for part in name.split("/") if part not in _WRAPPERS]
    if len(parts) > 1 and parts[-1] == parts[-2]:
        parts.pop()
    return "/".join(parts)


def _source(frames: Any, number: int, tokens: TokenTable) -> SourceLine | None:
    """The line behind a stack frame; all numbers count from 1, and 0 is none."""
    if not 0 < number <= len(frames.stack_frames):
        return None
    place = frames.stack_frames[number - 1].file_location_id
    if not 0 < place <= len(frames.file_locations):
        return None
    location = frames.file_locations[place - 1]
    if not 0 < location.file_name_id <= len(frames.file_names):
        return None
    if frames.file_names[location.file_name_id - 1] != SOURCE_FILE:
        return None
    source = tokens.nearest(location.line)
    return SourceLine(file=PurePath(source[0]).name, line=source[1]) if source else None
