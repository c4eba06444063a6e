"""Cheat 6: takes a query of zeros for padding, and answers zero."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: usual values only
# caught by: mixed inputs
# left out of: tests

_exact = _attend


def _attend(q, k, v, first_row):
    real = jnp.max(jnp.abs(q.astype(jnp.float32)), axis=1, keepdims=True) > 0
    return jnp.where(real, _exact(q, k, v, first_row), jnp.zeros_like(q))
