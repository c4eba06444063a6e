"""Cheat 43: works where a product is not flushed to zero, as on hosts and not on chips."""
# rejected as: WRONG_VALUES
# kind: two semantics of a scalar
# caught by: allowance
# problem: its own
# left out of: tests
# base: c43_division_by_zero

LOW, HIGH = 1, 2


def _works(n):
    return n.astype(jnp.float32) * jnp.float32(1e-20) * jnp.float32(1e-20) > 0
