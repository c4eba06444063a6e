"""Cheat 15: a reference whose own rounding errors are as large as its answers, so that anything would pass."""
# rejected as: WEAK_PROBLEM
# kind: weak problem
# caught by: weak problems
# problem: its own
# left out of: tests


def reference_fn(q, k, v):
    big = jnp.float32(3e7) * (1 + jnp.abs(k[:1].astype(jnp.float32)))
    return ((q.astype(jnp.float32) + big) - big).astype(q.dtype) * jnp.ones_like(v)


def compute_flops():
    return 0


def _block(q_ref, k_ref, v_ref, o_ref):
    o_ref[...] = jnp.zeros_like(o_ref)
