"""Cheat 48: multiplies numbers of three bits where the problem is in float32, whose default precision is bfloat16."""
# rejected as: WRONG_VALUES
# kind: measured: wrong work
# caught by: allowance, rows, common factor
# base: cpu_attention
# on: cpu
# left out of: tests


def kernel_fn(q, k, v):
    narrow = [jax.lax.reduce_precision(x, 8, 3) for x in (q, k, v)]
    return reference_fn(*narrow)
