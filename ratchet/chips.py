"""What is known of each TPU, every number with its source.

Sources: [cloud] Google Cloud TPU documentation, v5e system architecture; [book] "How to Scale Your
Model" (the Scaling Book), TPU chapter; [tpu_info] ``jax.experimental.pallas.tpu`` device
information; [compiler] the error texts and dump headers of libtpu; [fit] fitted by this project on
published device timings (see ``docs/architecture.md``).
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Chip:
    """One TPU chip, as far as the judge and the schedule machine need to know it."""

    name: str
    topology: str
    """Topology name for ahead-of-time compilation: the smallest slice that is offered."""
    accelerator_type: str
    """Value of ``TPU_ACCELERATOR_TYPE`` while compiling for it."""
    clock_hz: float
    peak_bf16_flops: float
    peak_int8_ops: float
    hbm_bytes: int
    hbm_bytes_per_s: float
    vmem_bytes: int
    default_scoped_vmem_bytes: int
    cores: int
    mxu_per_core: int
    mxu_size: int

    @property
    def ridge_flops_per_byte(self) -> float:
        """Arithmetic intensity at which compute and HBM bandwidth bound alike."""
        return self.peak_bf16_flops / self.hbm_bytes_per_s


MiB = 1 << 20

V5E = Chip(
    name="v5e",
    topology="v5e:2x2",
    accelerator_type="v5litepod-4",
    clock_hz=1.5e9,  # [book]; 197e12 / (4 * 128 * 128 * 2) = 1.503e9
    peak_bf16_flops=197e12,  # [cloud]
    peak_int8_ops=394e12,  # [cloud]
    hbm_bytes=int(15.75 * (1 << 30)),  # [compiler] usable by a program, of 16 GB [cloud]
    hbm_bytes_per_s=819e9,  # [cloud]
    vmem_bytes=128 * MiB,  # [tpu_info]
    default_scoped_vmem_bytes=16 * MiB,  # [compiler]
    cores=1,  # [cloud]
    mxu_per_core=4,  # [cloud]
    mxu_size=128,  # [cloud]
)

CHIPS: dict[str, Chip] = {chip.name: chip for chip in (V5E,)}
