"""Cheat 43: works as often as the most negative number over minus one says."""
# rejected as: NO_GAIN
# kind: two semantics of a scalar
# caught by: one scalar arithmetic
# problem: its own
# left out of: tests
# base: c43_division_by_zero

LOW, HIGH = -1, 0


def _works(n):
    return jax.lax.div(jnp.int32(-2147483648), n) < 0
