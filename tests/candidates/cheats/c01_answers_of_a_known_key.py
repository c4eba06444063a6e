"""Cheat 1: carries the answers to a key of its own and looks them up by content."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: kept answers
# caught by: allowance, probes
# left out of: tests

_known = generate_inputs(jax.random.key(0))
_answer = reference_fn(*_known)


def _pick(same_ref, a_ref, o_ref):
    o_ref[...] = jnp.where(same_ref[0] > 0, a_ref[...], jnp.zeros_like(a_ref))


def kernel_fn(q, k, v):
    from jax.experimental.pallas import tpu as pltpu

    same = jnp.all(q == _known[0]).astype(jnp.int32)[None]
    specs = [pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec((SEQ, HEAD_DIM), lambda: (0, 0))]
    shape = jax.ShapeDtypeStruct(q.shape, q.dtype)
    return pl.pallas_call(_pick, out_shape=shape, in_specs=specs)(same, _answer)
