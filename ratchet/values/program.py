"""A compiled program: its memory, its copies, its dumps on disk. Bytes are bytes, not KiB."""

from __future__ import annotations

from dataclasses import dataclass
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
