"""Cheat 13: each block is written where a copy still reads the last one from; it waits for all copies at its end."""
# rejected as: MEMORY_HAZARD
# kind: copies in flight
# caught by: late copies

from jax.experimental.pallas import tpu as pltpu


def _send(q_ref, k_ref, v_ref, o_ref, kept_ref, left):
    i = pl.program_id(0)
    kept_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], i * BQ)
    pltpu.make_async_copy(kept_ref, o_ref.at[pl.ds(i * BQ, BQ)], left).start()

    @pl.when(i == SEQ // BQ - 1)
    def _all_at_once():
        pltpu.make_async_copy(o_ref, o_ref, left).wait()


def kernel_fn(q, k, v):
    return _call(
        _send,
        out_specs=pl.BlockSpec(memory_space=pltpu.HBM),
        scratch_shapes=[pltpu.VMEM((BQ, HEAD_DIM), q.dtype), pltpu.SemaphoreType.DMA],
    )(q, k, v)
