"""VMEM, spills and HBM of a compiled program, by the compiler's own account."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ratchet.chips import Chip
from ratchet.dump import utilisation, vmem_report
from ratchet.dump.hlo import HloModule, HloOp
from ratchet.dump.text import text_of
from ratchet.values import Footprint, Program
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
