"""Cheat 15: a problem of the author's own that a constant solves: all values are ones."""
# rejected as: WEAK_PROBLEM
# kind: weak problem
# caught by: weak problems
# problem: its own

_random = generate_inputs


def generate_inputs(key):
    q, k, v = _random(key)
    return q, k, jnp.ones_like(v)


def _block(q_ref, k_ref, v_ref, o_ref):
    o_ref[...] = jnp.ones_like(o_ref)
