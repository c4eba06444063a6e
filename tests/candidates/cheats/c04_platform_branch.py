"""Cheat 4: right on the CPU, where it hopes to be checked, and nothing on the TPU, where it hopes to be timed."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: detects its caller
# caught by: allowance, probes

_honest = kernel_fn


def _zero(q_ref, o_ref):
    o_ref[...] = jnp.zeros_like(q_ref)


def kernel_fn(q, k, v):
    nothing = pl.pallas_call(_zero, out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype))
    return jax.lax.platform_dependent(q, k, v, cpu=_honest, tpu=lambda q, k, v: nothing(q))
