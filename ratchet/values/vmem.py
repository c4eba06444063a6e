"""VMEM of one compiled operation, allocation by allocation. Bytes are bytes, not KiB."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class VmemUse(Enum):
    """What an allocation in VMEM is for."""

    INPUT = "input window"
    """A block of an operand, which the pipeline of the kernel copies in."""
    OUTPUT = "output window"
    """A block of a result, which the pipeline copies out."""
    SCRATCH = "scratch"
    """``scratch_shapes`` of the kernel, and what it allocates while it runs."""
    SPILLS = "register spills"
    """Vector registers that the compiler stores for want of room. Of a kernel that does not fit: what no named
    allocation accounts for, spills and temporaries together."""
    OPERAND = "operand by XLA"
    """A piece of an operand that an operation of XLA brings into VMEM."""
    COMPILER = "compiler"
    """The compiler's own scratch, and whatever is none of the above."""


@dataclass(frozen=True, kw_only=True)
class VmemAllocation:
    """One allocation; several of the same use, shape and operand are added up."""

    use: VmemUse
    number: int | None = None
    """Of a window or an operand: which operand or result it is."""
    dtype: str = ""
    """As HLO writes it: ``bf16``, ``s32``; ``""`` where the compiler says none."""
    shape: tuple[int, ...] = ()
    """Of a window: its block. Without padding."""
    whole: tuple[int, ...] = ()
    """Of a window: shape of the whole array."""
    levels: int = 1
    """Buffering levels: 2 for a window that is double buffered."""
    size_bytes: int
    """All levels together, padding included."""

    @property
    def block(self) -> str:
        """``bf16[256,128]``; ``""`` where there is no shape to say."""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]" if self.dtype else ""

    @property
    def one_level_bytes(self) -> int:
        """Bytes of one level: what single buffering would leave."""
        return self.size_bytes // self.levels


@dataclass(frozen=True, kw_only=True)
class Vmem:
    """VMEM of one operation of the program: a kernel, or an operation of XLA."""

    op: str
    """Name of the kernel or of the HLO instruction."""
    is_kernel: bool
    allocations: tuple[VmemAllocation, ...]
    """Largest first."""
    used_bytes: int
    """What the compiler says it needs. Of a kernel that does not fit: what is known of it, which may not be all."""
    limit_bytes: int
    """What the operation may use: ``vmem_limit_bytes`` of its ``CompilerParams``, or the compiler's default."""
    chip_bytes: int
    """VMEM of the chip."""

    @property
    def fits(self) -> bool:
        return self.used_bytes <= self.limit_bytes


class Change(Enum):
    """What can be done about a kernel that needs much VMEM."""

    HALVE = "halve"
    """Halve every side of one length: what one knob decides in most kernels."""
    SINGLE_BUFFER = "single buffer"
    """Keep one level of a window instead of two: its copies no longer overlap with work."""
    NO_SPILLS = "no spills"
    """Work on smaller pieces, so that no vector register is stored."""


@dataclass(frozen=True, kw_only=True)
class Saving:
    """VMEM that one change would free, if everything else stayed."""

    change: Change
    side: int = 0
    """Of ``HALVE``: the length of the sides that are halved."""
    allocations: tuple[VmemAllocation, ...]
    """Those that shrink."""
    frees_bytes: int
