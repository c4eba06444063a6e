"""Cheat 17: weights leave the kernel unnormalised, and XLA adds them up in bfloat16 beside it."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: allowance
# left out of: tests
# base: row_softmax


def _kernel(x, o):
    o[...] = jnp.exp(x[...] - jnp.max(x[...], axis=1, keepdims=True))


_call = kernel_fn


def kernel_fn(x):
    e = _call(x)
    total = jax.lax.reduce(e.astype(jnp.bfloat16), jnp.bfloat16(0), jax.lax.add, (1,))
    return e / total.astype(jnp.float32)[:, None]
