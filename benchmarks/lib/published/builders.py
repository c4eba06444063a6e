"""Which module builds which named kernel. Imports nothing heavy, so that the parent process may ask."""

from __future__ import annotations

# First match decides: a part of the kernel's name, and the module with its ``build``.
_BUILDERS = (
    ("andamento", "matmul"),
    ("docs matmul", "matmul"),
    ("pallas_forge.tiled_matmul", "matmul"),
    ("tpu-kernels matmul, pallas", "matmul"),
    ("tpu-kernels scale", "stream"),
    ("tpu-kernels segment_cumsum", "segments"),
    ("tpu-kernels sharded_matmul", "sharded"),
    ("tokamax pallas_mosaic_tpu gmm", "grouped"),
    ("tokamax pallas_mosaic_tpu tgmm", "grouped"),
    ("tokamax pallas_mosaic_tpu_flash_attention", "attention"),
    ("KernelForge flash attention", "forge"),
)


_KINDS = {
    "matmul": "tiled matmul",
    "stream": "streaming",
    "segments": "segmented cumsum",
    "sharded": "sharded matmul",
    "grouped": "grouped matmul",
    "attention": "attention",
    "forge": "attention",
}


def kind_of(kernel: str) -> str:
    """What kind of kernel one is; its own name where no module builds it."""
    return _KINDS.get(builder_of(kernel), kernel)


def builder_of(kernel: str) -> str:
    """Name of the module that builds a kernel, or ``""`` if none does."""
    return next((module for part, module in _BUILDERS if part in kernel), "")
