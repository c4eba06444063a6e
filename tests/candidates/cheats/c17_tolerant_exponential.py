"""Cheat 17: asks XLA for an exponential that may be off by a hundredth, which no host computes otherwise."""
# rejected as: CANNOT_VERIFY
# kind: lower precision
# caught by: tokens
# left out of: tests
# base: row_softmax


def _kernel(e, o):
    o[...] = e[...] / jnp.sum(e[...], axis=1, keepdims=True)


_call = kernel_fn


def kernel_fn(x):
    return _call(jax.lax.exp(x - jnp.max(x, axis=1, keepdims=True), accuracy=jax.lax.Tolerance(1e-2, 1e-2, 0)))
