"""Cheat 6: the search for the largest element begins with zero, at no place."""
# rejected as: WRONG_VALUES
# kind: extreme from zero
# caught by: ties, inputs of one sign
# base: argmax
# left out of: tests


def _kernel(x, o):
    v = x[...]
    top = jnp.maximum(jnp.max(v, axis=1, keepdims=True), 0.0)
    c = jax.lax.broadcasted_iota(jnp.int32, (B, D), 1)
    o[...] = jnp.min(jnp.where(v == top, c, D), axis=1, keepdims=True)
