"""What kernels are exported for, by who judges them."""

from __future__ import annotations

PLATFORMS = {"tpu": "tpu", "gpu": "cuda", "cpu": "cpu"}
"""What each measuring evaluator's programs are exported for; the model's are a TPU's."""


def is_tpu(evaluator: str) -> bool:
    """Whether what this evaluator judges is compiled for a TPU."""
    return PLATFORMS.get(evaluator, "tpu") == "tpu"


GPU_KERNELS = ("__gpu$xla.gpu.triton", "triton_kernel_call", "mosaic_gpu", "mosaic_gpu_v2")
"""Custom calls that are Pallas kernels on a GPU."""
