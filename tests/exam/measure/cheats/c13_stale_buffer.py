"""Cheat 13: leaves half of the output as the memory was, in the hope that it still holds an earlier answer."""
# rejected as: WRONG_VALUES, NOT_FINITE

_honest = kernel_fn


def kernel_fn(q, k, v):
    return jax.lax.dynamic_update_slice(jnp.empty_like(q), _honest(q, k, v)[: SEQ // 2], (0, 0))
