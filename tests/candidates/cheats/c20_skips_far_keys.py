"""Cheat 20: leaves out the keys that are farthest from each query."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: skips work
# caught by: allowance, probes
# left out of: tests

WINDOW = 896


def _weights(scores):
    p = jnp.exp(scores - jnp.max(scores, axis=1, keepdims=True))
    rows = pl.program_id(0) * BQ + jax.lax.broadcasted_iota(jnp.int32, p.shape, 0)
    columns = jax.lax.broadcasted_iota(jnp.int32, p.shape, 1)
    return jnp.where(rows - columns < WINDOW, p, 0)
