"""VMEM, spills and HBM of a compiled program, by the compiler's own account."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ratchet.tpu.chips import Chip
from ratchet.tpu.dump import utilisation, vmem_report
from ratchet.tpu.dump.hlo import HloModule, HloOp
from ratchet.tpu.dump.text import text_of
from ratchet.values import Footprint, Program, Vmem, VmemAllocation
from ratchet.values.status import Refusal, Status

_VMEM = "1"
"""VMEM's number among the memory spaces of a ``backend_config``."""


def footprint(hlo: HloModule, schedule: Path, chip: Chip, *, hbm_bytes: int) -> Footprint:
    """What a program occupies.

    Args:
        hlo: the optimised module.
        schedule: the folder of the compiler's dumps.
        chip: what it was compiled for.
        hbm_bytes: what the compiler says of HBM.

    Raises:
        Refusal: ``INFRASTRUCTURE`` if what the compiler wrote is not as known.
    """
    used, limit = 0, chip.default_scoped_vmem_bytes
    for op in (hlo.ops[name] for name in hlo.kernels()):
        sizes, limits = _vmem(op, "used_scoped_memory_configs"), _vmem(op, "scoped_memory_configs")
        if sizes is None:
            raise Refusal(
                Status.INFRASTRUCTURE,
                f"the compiled kernel {op.name} has no used_scoped_memory_configs; wanted its VMEM. "
                "Is this a compiler that the judge does not know?",
            )
        if sum(sizes) >= used:
            used, limit = sum(sizes), limits[0] if limits else chip.default_scoped_vmem_bytes
    spilled = [
        utilisation.spills(text_of(path, Status.INFRASTRUCTURE), file=path.name)
        for path in schedule.glob(f"*{utilisation.SUFFIX}.txt")
    ]
    reports = [
        vmem_report.heaviest_buffers(text_of(path, Status.INFRASTRUCTURE), file=path.name)
        for path in sorted(schedule.glob(f"*{vmem_report.SUFFIX}"))
    ]
    return Footprint(
        vmem_bytes=used,
        vmem_limit_bytes=limit,
        vmem_buffers=max(reports, key=vmem_report.total_bytes, default=()),
        hbm_bytes=hbm_bytes,
        hbm_limit_bytes=chip.hbm_bytes,
        spill_stores=sum(stores for stores, _ in spilled),
        spill_loads=sum(loads for _, loads in spilled),
    )


def vmem_by_op(hlo: HloModule, schedule: Path, chip: Chip) -> tuple[Vmem, ...]:
    """VMEM of every kernel and every operation that the compiler reports on: kernels first, then by what they need.

    Args:
        hlo: the optimised module.
        schedule: the folder of the compiler's dumps.
        chip: what it was compiled for.

    Raises:
        Refusal: ``INFRASTRUCTURE`` for a report of another form.
    """
    reported: dict[str, tuple[VmemAllocation, ...]] = dict.fromkeys(hlo.kernels(), ())
    for path in sorted(schedule.glob(f"*{vmem_report.SUFFIX}")):
        reported |= vmem_report.allocations_by_op(text_of(path, Status.INFRASTRUCTURE), file=path.name)
    every = [_of_op(name, allocations, hlo, chip) for name, allocations in reported.items()]
    return tuple(sorted(every, key=lambda one: (not one.is_kernel, -one.used_bytes)))


def _of_op(name: str, allocations: tuple[VmemAllocation, ...], hlo: HloModule, chip: Chip) -> Vmem:
    op = hlo.ops.get(name)
    used = _vmem(op, "used_scoped_memory_configs") if op else None
    limits = _vmem(op, "scoped_memory_configs") if op else None
    return Vmem(
        op=name,
        is_kernel=name in hlo.launches,
        allocations=allocations,
        used_bytes=sum(used) if used else sum(one.size_bytes for one in allocations),
        limit_bytes=limits[0] if limits else chip.default_scoped_vmem_bytes,
        chip_bytes=chip.vmem_bytes,
    )


def kept_bytes(schedule: Path) -> int:
    """VMEM in which XLA keeps whole arrays. Raises Refusal ``INFRASTRUCTURE`` for a report of another form."""
    reports = sorted(schedule.glob(f"*{vmem_report.SUFFIX}"))
    return max(
        (vmem_report.kept_bytes(text_of(path, Status.INFRASTRUCTURE), file=path.name) for path in reports), default=0
    )


def _vmem(op: HloOp, key: str) -> Sequence[int] | None:
    """Bytes of VMEM under ``key`` of a kernel's ``backend_config``; None if there is nothing of the kind."""
    try:
        entries = op.config.get(key)
        if entries is None:
            return None
        return [int(entry["size"]) for entry in entries if entry["memory_space"] == _VMEM]
    except (ValueError, KeyError, TypeError):
        return None


def step(program: Program) -> tuple[Footprint, str]:
    """A step of a verdict: the footprint, in words."""
    used = program.footprint
    mib = 1 << 20
    return used, (
        f"VMEM {used.vmem_bytes / mib:.2f} of {used.vmem_limit_bytes / mib:.0f} MiB, "
        f"HBM {used.hbm_bytes / mib:.0f} MiB, {used.spill_stores} spill stores"
    )
