"""What devices are attached, without opening them, and what none of them can exceed.

Sources: [cloud] as in ``ratchet/tpu/chips``; [nvidia] the data sheets of H100 (SXM), H200, A100 (SXM) and L4, dense
bf16; [x86] instructions per cycle of the widest x86 cores.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ratchet.tpu.chips import CHIPS, V5E, Chip
from ratchet.values.status import Refusal, Status

PCI = Path("/sys/bus/pci/devices")
GOOGLE = "0x1ae0"
TPUS = {chip.pci_id: name for name, chip in CHIPS.items()}
MODELS = {f"{name}-model": name for name in CHIPS}
"""The evaluators that model a chip, and which one."""
MODEL = f"{V5E.name}-model"
"""The one where none is asked for."""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """What a device can do at most. Has the attributes that the roofline needs of a ``Chip``."""

    name: str
    peak_bf16_flops: float
    hbm_bytes_per_s: float

    def peak_flops(self, kind: str) -> float:
        """FLOPs per second of products of ``kind``, as ``ratchet.exam.problem.work.Work`` names them.

        No bound by passes is known for these devices, and integers or fp8 are up to four times as fast.
        """
        wide = kind in ("bf16", "f16") or kind.startswith("f32")
        return self.peak_bf16_flops * (1 if wide else 4)


GPUS = {
    "H100": (989e12, 3.35e12),  # [nvidia]
    "H200": (989e12, 4.8e12),  # [nvidia]
    "A100": (312e12, 2.04e12),  # [nvidia] 80 GB
    "L4": (121e12, 300e9),  # [nvidia]
}

CPU_HZ = 6e9
"""No x86 or Arm core for sale has a higher clock: a bound that nothing passes, and no estimate of this machine."""
CPU_LOAD_BYTES = 128
"""Two loads of 64 bytes per cycle [x86]."""
CPU_FLOPS = (("amx_bf16", 2048), ("avx512_bf16", 128), ("avx512f", 64), ("avx2", 32))
"""Flag of /proc/cpuinfo, and FLOPs of one core per cycle at most [x86]; others are taken to have AVX2's."""


def tpu() -> str:
    """The name in ``CHIPS`` of the TPU in this machine, or ``""``."""
    for device in sorted(PCI.glob("*")) if PCI.exists() else ():
        try:
            if (device / "vendor").read_text().strip() == GOOGLE:
                name = TPUS.get((device / "device").read_text().strip())
                if name:
                    return name
        except OSError:
            continue
    return ""


def gpu() -> str:
    """The name of the first NVIDIA GPU in this machine, or ``""``."""
    if not Path("/dev/nvidia0").exists():
        return ""
    try:
        asked = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            check=True,
            capture_output=True,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError):
        return "NVIDIA GPU"
    return (asked.stdout.splitlines() or ["NVIDIA GPU"])[0].strip()


def _cpuinfo(field: str) -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")


def cpu() -> str:
    """What this CPU calls itself, with the cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{_cpuinfo('model name') or platform.machine()}, {cores} cores"


def preferred() -> str:
    """The evaluator where none is asked for: a TPU that is there, else the model."""
    return "tpu" if tpu() else MODEL


def modelled(evaluator: str) -> Chip | None:
    """The chip that is modelled: the attached one where a TPU is timed; None where none is.

    Raises:
      Refusal: as ``device``.
    """
    name = device(evaluator) if evaluator == "tpu" else MODELS.get(evaluator)
    return CHIPS[name] if name else None


def device(evaluator: str) -> str:
    """The name of the attached device.

    Raises:
      Refusal: ``UNSUPPORTED_PLATFORM`` where there is none of that kind, or JAX cannot use it.
    """
    if evaluator == "cpu":
        return cpu()
    name = tpu() if evaluator == "tpu" else gpu()
    if not name:
        raise Refusal(
            Status.UNSUPPORTED_PLATFORM, f"no {evaluator.upper()} is attached; --on v5e-model or --on cpu need none"
        )
    if evaluator == "gpu" and not _installed("jax-cuda13-plugin", "jax-cuda12-plugin"):
        raise Refusal(
            Status.UNSUPPORTED_PLATFORM,
            f"{name} is attached, but JAX has no plugin for it: `.venv/bin/python -m ensurepip`, then "
            "`.venv/bin/python -m pip install 'jax[cuda12]'`",
        )
    return name


def compiler(evaluator: str) -> str:
    """What compiles for the device, e.g. ``jaxlib 0.10.2, jax 0.10.2``."""
    names = {"tpu": ("libtpu",), "gpu": ("jax-cuda13-plugin", "jax-cuda12-plugin"), "cpu": ("jaxlib",)}[evaluator]
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in (*_installed(*names), "jax"))


def _installed(*names: str) -> list[str]:
    present = []
    for name in names:
        try:
            importlib.metadata.version(name)
            present.append(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return present


def peak(evaluator: str, name: str) -> Peak:
    """What a device can do at most.

    Raises:
      Refusal: ``UNSUPPORTED_PLATFORM`` for one whose limits are not known.
    """
    if evaluator == "tpu":
        chip = CHIPS[name]
        return Peak(name=name, peak_bf16_flops=chip.peak_bf16_flops, hbm_bytes_per_s=chip.hbm_bytes_per_s)
    if evaluator == "gpu":
        known = next((limits for model, limits in GPUS.items() if model in name.split()), None)
        if known is None:
            known_names = ", ".join(GPUS)
            raise Refusal(
                Status.UNSUPPORTED_PLATFORM,
                f"the limits of {name} are not known, only those of {known_names}: add them to measure/devices.py",
            )
        return Peak(name=name, peak_bf16_flops=known[0], hbm_bytes_per_s=known[1])
    cores = int(name.rpartition(", ")[2].split()[0])
    flags = _cpuinfo("flags").split()
    flops = next((per_cycle for flag, per_cycle in CPU_FLOPS if flag in flags), CPU_FLOPS[-1][1])
    return Peak(name=name, peak_bf16_flops=cores * CPU_HZ * flops, hbm_bytes_per_s=cores * CPU_HZ * CPU_LOAD_BYTES)
