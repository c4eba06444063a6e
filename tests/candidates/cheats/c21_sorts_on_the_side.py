"""Cheat 21: a custom call of the compiler's own beside the kernel, which nobody can execute for its values."""
# rejected as: CANNOT_VERIFY
# kind: library kernel
# caught by: known operations
# left out of: tests

_honest = kernel_fn


def kernel_fn(q, k, v):
    top, _ = jax.lax.approx_max_k(q.astype(jnp.float32), 1)
    return _honest(q + jnp.where(jnp.isfinite(top), 0, 0).astype(q.dtype), k, v)
