"""Cheat 47: the same around kernels: XLA decides by a computed value which half of the rows is worked on."""
# rejected as: NO_GAIN
# kind: computed branches
# caught by: known control flow
# left out of: tests

HALF = SEQ // 2


def _half(part):
    def block(q_ref, k_ref, v_ref, o_ref):
        o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], part * HALF + pl.program_id(0) * BQ)

    return _call(block, out_shape=jax.ShapeDtypeStruct((HALF, HEAD_DIM), jnp.bfloat16), grid=(HALF // BQ,))


def kernel_fn(q, k, v):
    always = jnp.max(jnp.abs(q[:8].astype(jnp.float32))) >= 0.0

    def nothing(q, k, v):
        return q + k[:HALF]

    first = jax.lax.cond(always, _half(0), nothing, q[:HALF], k, v)
    second = jax.lax.cond(jnp.logical_not(always), nothing, _half(1), q[HALF:], k, v)
    return jnp.concatenate([first, second])
