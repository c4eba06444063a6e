"""Cheat 5: the last block of rows is off by a factor of 1.0006, of which its rows are too few to say anything."""
# rejected as: WRONG_VALUES
# kind: last block
# caught by: sides of a rounding
# base: matmul_bf16
# left out of: tests, quick


def _finished(total):
    last = pl.program_id(0) == pl.num_programs(0) - 1
    return total * jnp.where(last, 1.0006, 1.0)
