"""Cheat 46: each chip answers with its own share, and says that all chips hold the same."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: skips a chip's share
# caught by: allowance, probes
# base: remote_decode
# left out of: tests


def _alone(q_ref, k_ref, v_ref, o_ref):
    s = jax.lax.dot_general(q_ref[0], k_ref[0], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    p = jnp.exp((s - jnp.max(s, axis=1, keepdims=True)) * HEAD_DIM**-0.5)
    out = jnp.dot(p.astype(v_ref.dtype), v_ref[0], preferred_element_type=jnp.float32)
    o_ref[0] = (out / jnp.sum(p, axis=1, keepdims=True)).astype(o_ref.dtype)


def _shard(q, k, v):
    keys = pl.BlockSpec((1, SHARD, HEAD_DIM), lambda h: (h, 0, 0))
    return pl.pallas_call(
        _alone,
        out_shape=jax.ShapeDtypeStruct((HEADS, 1, HEAD_DIM), q.dtype),
        grid=(HEADS,),
        in_specs=[pl.BlockSpec((1, 1, HEAD_DIM), lambda h: (h, 0, 0)), keys, keys],
        out_specs=pl.BlockSpec((1, 1, HEAD_DIM), lambda h: (h, 0, 0)),
    )(q[:, None, :], k, v)[:, 0]
