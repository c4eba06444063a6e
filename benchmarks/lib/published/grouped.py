"""tokamax's grouped matmuls for the TPU (``pallas_mosaic_tpu`` ragged dot), with the group sizes of each row."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.lib.published.build import Built, NotBuilt, aval
from benchmarks.lib.published.cases import Case


def build(case: Case) -> Built:
    """The whole program, as its public operation makes it: group bookkeeping by XLA, then the kernel.

    Raises:
        NotBuilt: if the row lacks group sizes or tiles.
        ImportError: without tokamax.
    """
    from tokamax._src.ops.ragged_dot import pallas_mosaic_tpu as op  # type: ignore[import-not-found]
    from tokamax._src.ops.ragged_dot import pallas_mosaic_tpu_kernel as backend  # type: ignore[import-not-found]

    try:
        tiles = [int(case.config[f"tile_{axis}"]) for axis in "mkn"]
    except KeyError as error:
        raise NotBuilt(f"a grouped matmul without {error}") from None
    if not case.group_sizes or len(case.arrays) != 2:
        raise NotBuilt("a grouped matmul needs two operands and group sizes")
    extra: dict[str, Any] = {}
    if case.config.get("combine_scopes", "False") == "True":
        extra["combine_scopes"] = True
    buffers = int(case.config.get("input_buffer_count") or case.config.get("bufs", "2"))
    config = op.Config(tile_m=tiles[0], tile_k=tiles[1], tile_n=tiles[2], input_buffer_count=buffers, **extra)
    transposed = "tgmm" in case.kernel
    numbers = (
        op.DRHS_RAGGED_DOT_DIM_NUMS
        if transposed
        else op.DLHS_RAGGED_DOT_DIM_NUMS
        if "transpose_rhs" in case.kernel
        else op.DEFAULT_RAGGED_DOT_DIM_NUMS
    )

    class AheadOfTime(op.PallasMosaicTpuRaggedDot):  # type: ignore[misc]
        def supported_on(self, device: jax.Device) -> bool:
            return True  # it would ask the process's own device, which is a CPU

    ragged_dot = AheadOfTime(config=config)

    more = {"return_residuals": True} if case.options.get("residuals") else {}

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
    operands = [np.asarray(count, np.int32), *(np.asarray(a, np.int32) for a in (offsets, group_ids, tile_ids))]
    return Built(
        function=function,
        avals=(*(aval(array) for array in case.arrays), jax.ShapeDtypeStruct(sizes.shape, jnp.int32)),
        scalars={"2": sizes, **{f"kernel:{i}": values for i, values in enumerate(operands)}},
    )
