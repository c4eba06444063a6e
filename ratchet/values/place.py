"""Where a cycle of a modelled run is spent: a source line, or one of the things that have no line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceLine:
    """A line of a source file."""

    file: str
    """Name of the file, without folders."""
    line: int
    """Counted from 1."""


class Code(Enum):
    """Compiled code that has no source line."""

    PIPELINE = "pipeline"
    """Scalar code that the compiler puts around a kernel: window addresses, DMA starts and waits, loop control."""
    VECTOR = "vector"
    """Vector code of a kernel that no line could be given to."""
    TOP_LEVEL = "top level"
    """The program around all HLO ops."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Op:
    """An HLO op outside the kernels."""

    name: str
    opcode: str
    """``runtime`` for what the compiler adds and the optimised HLO does not name."""
    alike: int = 0
    """How many other ops run the same compiled code and are counted here too."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Window:
    """A block of an operand that the compiler's pipeline copies in or out."""

    kind: str
    """``input`` or ``output``."""
    number: int
    """Which of the kernel's inputs or outputs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Windows:
    """A wait of the compiler's pipeline, named by the windows whose copies signal it."""

    windows: tuple[Window, ...]


Place = SourceLine | Code | Op | Windows
