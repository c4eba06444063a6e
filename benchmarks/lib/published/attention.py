"""tokamax's flash attention for the TPU (``pallas_mosaic_tpu``), on [batch, sequence, heads, width] operands."""

from __future__ import annotations

from typing import Any

import jax

from benchmarks.lib.published.build import Built, NotBuilt, aval
from benchmarks.lib.published.cases import Case


def build(case: Case) -> Built:
    """The whole program, as its public operation makes it: scaling, transposes and the kernel.

    Raises:
        NotBuilt: if the row has a mask or settings that are not known here.
        ImportError: without tokamax.
    """
    from tokamax._src.ops.attention import base  # type: ignore[import-not-found]
    from tokamax._src.ops.attention import pallas_mosaic_tpu as op  # type: ignore[import-not-found]
    from tokamax._src.ops.experimental.tpu.splash_attention import splash_attention_kernel as splash  # type: ignore[import-not-found]

    settings = dict(case.config)
    try:
        config = op.Config(
            **{name: int(settings.pop(name)) for name in ("block_q", "block_kv", "block_kv_compute")},
            **{name: splash.QKVLayout(int(settings.pop(name))) for name in ("q_layout", "k_layout", "v_layout")},
            use_experimental_scheduler=settings.pop("use_experimental_scheduler", "False") == "True",
            use_base2_exp=settings.pop("use_base2_exp", "True") == "True",
        )
    except KeyError as error:
        raise NotBuilt(f"flash attention without {error}") from None
    residuals = bool(case.options.get("residuals"))
    mask = dict(case.options.get("mask") or {})
    causal = bool(mask.pop("is_causal", False))
    if settings or any(value is not None for value in mask.values()):
        raise NotBuilt(f"flash attention with settings {sorted(settings)} and mask {sorted(mask)}")

    class AheadOfTime(op.PallasMosaicTpuFlashAttention):  # type: ignore[misc]
        def supported_on(self, device: jax.Device) -> bool:
            return True  # it would ask the process's own device, which is a CPU

    attention = AheadOfTime(config=config)

    def function(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        masked, soft_cap = base.Mask(is_causal=causal), case.options.get("soft_cap")
        more = {"return_residuals": True} if residuals else {}
        return attention(q, k, v, mask=masked, logits_soft_cap=soft_cap, **more)

    return Built(function=function, avals=tuple(aval(array) for array in case.arrays))
