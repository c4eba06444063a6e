"""Cheat 34: the answer is stored where a copy is yet to arrive, which is waited for only afterwards."""
# rejected as: MEMORY_HAZARD
# kind: copy under way
# caught by: late copies
# left out of: tests
# said: target_overwritten

from jax.experimental.pallas import tpu as pltpu


def _block(q_ref, k_ref, v_ref, o_ref, kept, left):
    i = pl.program_id(0)
    fetch = pltpu.make_async_copy(kept.at[1], kept.at[0], left.at[0])
    kept[1] = q_ref[...]
    fetch.start()
    kept[0] = _attend(q_ref[...], k_ref[...], v_ref[...], i * BQ)
    fetch.wait()
    pltpu.async_copy(kept.at[0], o_ref.at[pl.ds(i * BQ, BQ)], left.at[1]).wait()


def kernel_fn(q, k, v):
    return _call(
        _block,
        out_specs=pl.BlockSpec(memory_space=pltpu.HBM),
        scratch_shapes=[pltpu.VMEM((2, BQ, HEAD_DIM), q.dtype), pltpu.SemaphoreType.DMA((2,))],
    )(q, k, v)
