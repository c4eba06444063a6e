"""Cheat 13: uses what a copy brings before it has waited for it."""
# rejected as: MEMORY_HAZARD
# kind: copies in flight
# caught by: late copies
# left out of: tests

from jax.experimental.pallas import tpu as pltpu


def _early(q_ref, k_ref, v_any, o_ref, v_ref, here):
    copy = pltpu.make_async_copy(v_any, v_ref, here)
    copy.start()
    o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)
    copy.wait()


def kernel_fn(q, k, v):
    return _call(
        _early,
        in_specs=[_rows(), _whole(), pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.VMEM((SEQ, HEAD_DIM), q.dtype), pltpu.SemaphoreType.DMA],
    )(q, k, v)
