"""Cheat 6: what was taken is replaced by zero and not by minus infinity before the second largest is looked for."""
# rejected as: WRONG_VALUES
# kind: extreme from zero
# caught by: ties, inputs of one sign
# base: top_2
# left out of: tests, quick


def _kernel(x, v, p):
    rest, c = x[...], jax.lax.broadcasted_iota(jnp.int32, (B, D), 1)
    for k in range(2):
        top = jnp.max(rest, axis=1, keepdims=True)
        place = jnp.min(jnp.where(rest == top, c, D), axis=1, keepdims=True)
        v[:, k : k + 1], p[:, k : k + 1] = top, place
        rest = jnp.where(c == place, 0.0, rest)
