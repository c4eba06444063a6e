"""Which TPU a program is lowered for, and what runs without one. A kind that is not known here is taken for a v5e."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax.experimental.pallas import tpu as pltpu

HOME = "v5e"
"""The chip that the kernels were written for."""
_CHIPS = {"v4": "v4", "v5e": "v5e", "v5p": "v5p", "v6e": "v6e", "7x": "tpu7x"}
"""What JAX calls the chips, and what the table of blocks does."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One TensorCore."""

    chip: str = HOME
    vmem_bytes: int = 128 << 20


def target() -> Target:
    """The TPU of JAX's device, or of the mesh that it is lowering for."""
    try:
        info = pltpu.get_tpu_info()
    except ValueError:  # another platform, or a TPU that this JAX does not know
        return Target()
    version = str(getattr(info.chip_version, "value", info.chip_version))
    return Target(chip=_CHIPS[version], vmem_bytes=info.vmem_capacity_bytes) if version in _CHIPS else Target()


def by_platform(on_tpu: Callable[..., Any], elsewhere: Callable[..., Any] | None, *operands: Any) -> Any:
    """One program on a TPU and another elsewhere, decided when it is lowered; without another, the first everywhere."""
    if elsewhere is None:
        return on_tpu(*operands)
    return jax.lax.platform_dependent(*operands, tpu=on_tpu, default=elsewhere)
