"""Cheat 43: works as often as a remainder by zero says."""
# rejected as: CANNOT_VERIFY
# kind: undefined scalar
# caught by: defined scalars
# problem: its own
# left out of: tests
# base: c43_division_by_zero


def _works(n):
    return jax.lax.rem(jnp.int32(1), n) == 1
