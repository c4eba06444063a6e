"""A compiled program: its memory, allocation by allocation, its copies, its dumps on disk."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class VmemBuffer:
    """One line of the compiler's VMEM report."""

    name: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Memory of the compiled program, as the compiler says."""

    vmem_bytes: int
    """Largest scoped VMEM of any kernel: windows + scratch + spills."""
    vmem_limit_bytes: int
    vmem_buffers: tuple[VmemBuffer, ...]
    hbm_bytes: int
    hbm_limit_bytes: int
    spill_stores: int
    """Static count of vector spill stores in the kernels' bundles."""
    spill_loads: int

    @property
    def spills(self) -> int:
        """Stores and loads together."""
        return self.spill_stores + self.spill_loads


@dataclass(frozen=True, kw_only=True)
class Copy:
    """One copy in the optimised HLO that moves bytes without computing."""

    instruction: str
    kind: str
    """``relayout``, ``prefetch`` or ``copy``."""
    injected: bool
    """True if the compiler put it there; False if the author's transpose, reshape or convert asked for it."""
    size_bytes: int
    """Padded bytes of the result, as laid out in HBM."""
    cause: str
    has: str = ""
    """Of a relayout: what there is, ``f32[512,64]{0,1}``, the sides from the fastest to the slowest in memory."""
    wants: str = ""
    """Of a relayout: what is made of it."""
    parameter: int | None = None
    """The input of the program that is copied, by position, where it is one."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A compiled program and its dumps on disk."""

    chip: str
    compiler: str
    """E.g. ``libtpu 0.0.42.1 / jax 0.10.2``."""
    dump_dir: Path
    """Holds ``optimized.hlo``, ``lowered.hlo`` and ``schedule/`` with the compiler's text dumps."""
    footprint: Footprint
    copies: tuple[Copy, ...]
    kernels: tuple[str, ...]
    """Names of the live ``tpu_custom_call`` instructions."""
    chip_ids: tuple[int, ...] = (0,)
    """The device at each place of the mesh, in order."""
    seconds: float


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
    PREFETCHED = "prefetched operand"
    """In SMEM: an operand that is there before the kernel begins (``num_scalar_prefetch``)."""
    OPERAND = "operand by XLA"
    """A piece of an operand that an operation of XLA brings into VMEM."""
    COMPILER = "compiler"
    """The compiler's own scratch, and whatever is none of the above."""
    UNNAMED = "named by no allocation of the compiler's"
    """What it counts beyond its own list."""


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
    """VMEM, or SMEM, of one operation of the program: a kernel, or an operation of XLA."""

    op: str
    """Name of the kernel or of the HLO instruction."""
    is_kernel: bool
    allocations: tuple[VmemAllocation, ...]
    """Largest first."""
    used_bytes: int
    """What the compiler says it needs. Of a kernel that does not fit: what is known of it, which may not be all."""
    limit_bytes: int
    """What the operation may use: ``vmem_limit_bytes`` of its ``CompilerParams``, or the compiler's default. 0 where
    that is not known, as of SMEM that suffices."""
    chip_bytes: int
    """VMEM of the chip."""
    memory: str = "VMEM"

    @property
    def fits(self) -> bool:
        return not self.limit_bytes or self.used_bytes <= self.limit_bytes


class Remedy(Enum):
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

    change: Remedy
    side: int = 0
    """Of ``HALVE``: the length of the sides that are halved."""
    allocations: tuple[VmemAllocation, ...]
    """Those that shrink."""
    frees_bytes: int
