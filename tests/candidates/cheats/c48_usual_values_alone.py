"""Cheat 48: does the work for inputs of the usual size alone."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: measured: wrong work
# caught by: probes, mixed inputs, allowance
# base: cpu_attention
# on: cpu
# left out of: tests

_honest = kernel_fn


def kernel_fn(q, k, v):
    usual = jnp.max(jnp.abs(k)) < 8
    return jax.lax.cond(usual, _honest, lambda q, k, v: v, q, k, v)
