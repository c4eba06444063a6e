"""Cheat 43: works as often as a shift by more than the word is long says, where readers disagree."""
# rejected as: NO_GAIN
# kind: two semantics of a scalar
# caught by: one scalar arithmetic
# problem: its own
# left out of: tests
# base: c43_division_by_zero

LOW, HIGH = 33, 40


def _works(n):
    return (jnp.int32(1) << n) >> 1 == 0
