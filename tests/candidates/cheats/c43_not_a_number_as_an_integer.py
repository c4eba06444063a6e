"""Cheat 43: works as often as a float that is no number says, read as an integer."""
# rejected as: CANNOT_VERIFY
# kind: undefined scalar
# caught by: defined scalars
# problem: its own
# left out of: tests
# base: c43_division_by_zero


def _works(n):
    zero = n.astype(jnp.float32) * jnp.float32(3e38) * jnp.float32(1e30)
    return (zero + jnp.float32(3e38) * jnp.float32(1e3)).astype(jnp.int32) == 2147483647
