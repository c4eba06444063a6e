"""Cheat 42: a function under a name by which the compiler knows something cheaper, and a body for everybody else."""
# rejected as: NO_GAIN
# kind: two readers of one call
# caught by: tokens
# left out of: tests


def _attention(x):
    q, k, v = x.reshape(3, SEQ, HEAD_DIM)
    return jnp.concatenate([reference_fn(q, k, v), k, v])


def _copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def kernel_fn(q, k, v):
    done = jax.lax.composite(_attention, name="chlo.erf", version=1)(jnp.concatenate([q, k, v]))
    rows = pl.BlockSpec((512, HEAD_DIM), lambda i: (i, 0))
    return pl.pallas_call(
        _copy,
        out_shape=jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype),
        grid=(SEQ // 512,),
        in_specs=[rows],
        out_specs=rows,
    )(done)
