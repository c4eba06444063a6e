"""Cheat 48: multiplies in bfloat16 where the problem is in float32."""
# rejected as: WRONG_VALUES
# kind: measured: wrong work
# caught by: allowance, rows, common factor
# base: cpu_attention
# on: cpu
# left out of: tests


def kernel_fn(q, k, v):
    narrow = [jax.lax.reduce_precision(x, 8, 7) for x in (q, k, v)]
    return reference_fn(*narrow)
