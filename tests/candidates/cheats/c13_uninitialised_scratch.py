"""Cheat 13: adds to scratch memory that nothing has set to zero."""
# rejected as: MEMORY_HAZARD
# kind: memory never written
# caught by: unwritten memory

from jax.experimental.pallas import tpu as pltpu


def _add(q_ref, k_ref, v_ref, o_ref, kept_ref):
    kept_ref[...] += _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ).astype(jnp.float32)
    o_ref[...] = kept_ref[...].astype(o_ref.dtype)


def kernel_fn(q, k, v):
    return _call(_add, scratch_shapes=[pltpu.VMEM((BQ, HEAD_DIM), jnp.float32)])(q, k, v)
