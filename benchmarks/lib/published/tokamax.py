"""tokamax's TPU kernels with published timings, whole programs as its public operations make them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.lib.published.cases import Case
from benchmarks.lib.published.kernels import Built, NotBuilt, avals_of, sizes_of


def _ahead_of_time(operation: Any, config: Any) -> Any:
    """An operation that is lowered for a TPU here: it would ask the process's own device, which is a CPU."""

    class AheadOfTime(operation):  # type: ignore[misc]
        def supported_on(self, device: jax.Device) -> bool:
            return True

    return AheadOfTime(config=config)


def _residuals(case: Case) -> dict[str, bool]:
    return {"return_residuals": True} if case.options.get("residuals") else {}


def attention(case: Case) -> Built:
    """Flash attention (``pallas_mosaic_tpu``) of [batch, sequence, heads, width]: scaling, transposes and the kernel.

    Raises:
        NotBuilt: if the row has a mask or settings that are not known here.
    """
    from tokamax._src.ops.attention import base  # type: ignore[import-not-found]
    from tokamax._src.ops.attention import pallas_mosaic_tpu as op  # type: ignore[import-not-found]
    from tokamax._src.ops.experimental.tpu.splash_attention import splash_attention_kernel as splash  # type: ignore[import-not-found]

    blocks, layouts = ("block_q", "block_kv", "block_kv_compute"), ("q_layout", "k_layout", "v_layout")
    sizes = dict(zip((*blocks, *layouts), sizes_of(case, *blocks, *layouts), strict=True))
    settings = {name: value for name, value in case.config.items() if name not in sizes}
    config = op.Config(
        **{name: sizes[name] for name in blocks},
        **{name: splash.QKVLayout(sizes[name]) for name in layouts},
        use_experimental_scheduler=settings.pop("use_experimental_scheduler", "False") == "True",
        use_base2_exp=settings.pop("use_base2_exp", "True") == "True",
    )
    mask = dict(case.options.get("mask") or {})
    causal = bool(mask.pop("is_causal", False))
    if settings or any(value is not None for value in mask.values()):
        raise NotBuilt(f"flash attention with settings {sorted(settings)} and mask {sorted(mask)}")
    attend, more = _ahead_of_time(op.PallasMosaicTpuFlashAttention, config), _residuals(case)

    def function(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        masked, soft_cap = base.Mask(is_causal=causal), case.options.get("soft_cap")
        return attend(q, k, v, mask=masked, logits_soft_cap=soft_cap, **more)

    return Built(function=function, avals=avals_of(case))


def grouped(case: Case) -> Built:
    """A grouped matmul (``pallas_mosaic_tpu`` ragged dot): group bookkeeping by XLA, then the kernel.

    Raises:
        NotBuilt: if the row lacks group sizes or tiles.
    """
    from tokamax._src.ops.ragged_dot import pallas_mosaic_tpu as op  # type: ignore[import-not-found]
    from tokamax._src.ops.ragged_dot import pallas_mosaic_tpu_kernel as backend  # type: ignore[import-not-found]

    tiles, avals = sizes_of(case, "tile_m", "tile_k", "tile_n"), avals_of(case, 2)
    if not case.group_sizes:
        raise NotBuilt("a grouped matmul needs group sizes")
    extra = {"combine_scopes": True} if case.config.get("combine_scopes", "False") == "True" else {}
    buffers = int(case.config.get("input_buffer_count") or case.config.get("bufs", "2"))
    config = op.Config(tile_m=tiles[0], tile_k=tiles[1], tile_n=tiles[2], input_buffer_count=buffers, **extra)
    transposed = "tgmm" in case.kernel
    numbers = op.DLHS_RAGGED_DOT_DIM_NUMS if "transpose_rhs" in case.kernel else op.DEFAULT_RAGGED_DOT_DIM_NUMS
    numbers = op.DRHS_RAGGED_DOT_DIM_NUMS if transposed else numbers
    ragged_dot, more = _ahead_of_time(op.PallasMosaicTpuRaggedDot, config), _residuals(case)

    def function(lhs: jax.Array, rhs: jax.Array, group_sizes: jax.Array) -> Any:
        return ragged_dot(
            lhs,
            rhs,
            group_sizes=group_sizes,
            ragged_dot_dimension_numbers=numbers,
            preferred_element_type=case.options.get("out"),
            **more,
        )

    sizes = np.asarray(case.group_sizes, np.int32)
    (offsets, group_ids, tile_ids), count = backend.make_group_metadata(
        group_sizes=jnp.asarray(sizes),
        m=case.arrays[0].shape[0],
        tm=tiles[0],
        start_group=jnp.int32(0),
        num_nonzero_groups=len(sizes),
        visit_empty_groups=transposed,
    )
    # In the order of the custom call: the dynamic bound of the grid, then what is prefetched into scalar memory.
    operands = [np.asarray(a, np.int32) for a in (count, offsets, group_ids, tile_ids)]
    return Built(
        function=function,
        avals=(*avals, jax.ShapeDtypeStruct(sizes.shape, jnp.int32)),
        scalars={"2": sizes, **{f"kernel:{i}": values for i, values in enumerate(operands)}},
    )
