"""Cheat 13: starts its copies and gives their semaphore away as a result, so that nobody waits for them."""
# rejected as: MEMORY_HAZARD
# kind: copies in flight
# caught by: late copies
# left out of: tests
# said: read_before_wait

from jax.experimental.pallas import tpu as pltpu


def _block(q_ref, k_ref, v_ref, o_ref, arrived, kept):
    i = pl.program_id(0)
    kept[i] = _attend(q_ref[...], k_ref[...], v_ref[...], i * BQ)
    pltpu.make_async_copy(kept.at[i], o_ref.at[pl.ds(i * BQ, BQ)], arrived).start()


def kernel_fn(q, k, v):
    out, _ = _call(
        _block,
        out_shape=(jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype), pltpu.SemaphoreType.DMA(())),
        out_specs=(pl.BlockSpec(memory_space=pltpu.HBM), pl.BlockSpec(memory_space=pltpu.SEMAPHORE)),
        scratch_shapes=[pltpu.VMEM((SEQ // BQ, BQ, HEAD_DIM), q.dtype)],
    )(q, k, v)
    return out
