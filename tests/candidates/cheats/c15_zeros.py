"""Cheat 15: zeros, in the hope of a loose absolute tolerance."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: skips work
# caught by: allowance, probes
# left out of: tests


def _block(q_ref, k_ref, v_ref, o_ref):
    o_ref[...] = jnp.zeros_like(o_ref)
