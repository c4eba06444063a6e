"""Cheat 14: hands its inputs on in place of scratch memory, written over."""
# rejected as: INPUTS_CHANGED
# kind: writes its inputs
# caught by: inputs kept
# left out of: tests

from jax.experimental.pallas import tpu as pltpu


def _over(q_ref, k_ref, v_ref, o_ref):
    k_ref[...] = k_ref[...] * jnp.bfloat16(HEAD_DIM**-0.5)
    scores = jax.lax.dot_general(q_ref[...], k_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    columns = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    p = _weights(jnp.where(columns <= jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0), scores, -jnp.inf))
    out = jnp.dot(p.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = (out / jnp.sum(p, axis=1, keepdims=True)).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    whole = pl.BlockSpec(memory_space=pltpu.VMEM)
    shape = jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype)
    return pl.pallas_call(_over, out_shape=shape, in_specs=[whole] * 3, out_specs=whole)(q, k, v)
