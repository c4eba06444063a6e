"""What would free VMEM of a kernel: smaller blocks, single buffering, no spills. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ratchet.tpu.dump.layout import ArrayType
from ratchet.values.program import Remedy, Saving, Vmem, VmemAllocation, VmemUse

LANES, SUBLANE_BITS = 128, 256
"""A tile of VMEM is as many lanes wide, and as many bits of one lane deep: 8 rows of 32 bits, 16 of 16."""


def savings(vmem: Vmem) -> tuple[Saving, ...]:
    """What would free VMEM of one kernel, largest first; each if everything else stayed."""
    windows = [one for one in vmem.allocations if one.use in (VmemUse.INPUT, VmemUse.OUTPUT)]
    blocks = [*windows, *(one for one in vmem.allocations if one.use is VmemUse.SCRATCH)]
    every = [_halved(side, blocks) for side in sorted({side for one in blocks for side in one.shape if side > 1})]
    every += [
        Saving(change=Remedy.SINGLE_BUFFER, allocations=(one,), frees_bytes=one.size_bytes - one.one_level_bytes)
        for one in windows
        if one.levels > 1
    ]
    every += [
        Saving(change=Remedy.NO_SPILLS, allocations=(one,), frees_bytes=one.size_bytes)
        for one in vmem.allocations
        if one.use is VmemUse.SPILLS
    ]
    return tuple(sorted((one for one in every if one.frees_bytes), key=lambda one: -one.frees_bytes))


def _halved(side: int, blocks: Sequence[VmemAllocation]) -> Saving:
    """What halving all sides of one length frees."""
    freed = {one: one.size_bytes - one.size_bytes * _bytes(one, side) // _bytes(one) for one in blocks}
    shrink = tuple(one for one, saved in freed.items() if saved)
    return Saving(change=Remedy.HALVE, side=side, allocations=shrink, frees_bytes=sum(freed.values()))


def _bytes(block: VmemAllocation, halved: int = 0) -> int:
    """Bytes of one level, padded to whole tiles, with every side of length ``halved`` at half of it."""
    shape = tuple(-(-side // 2) if side == halved else side for side in block.shape)
    order = tuple(reversed(range(len(shape))))
    array = ArrayType(dtype=block.dtype, shape=shape, minor_to_major=order, tiles=(), space=1)
    return replace(array, tiles=((max(1, SUBLANE_BITS // array.item_bits), LANES),)).padded_bytes
