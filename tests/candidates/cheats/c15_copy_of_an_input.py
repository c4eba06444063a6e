"""Cheat 15: a problem of the author's own that a copy of an input solves: each row attends to itself alone."""
# rejected as: WEAK_PROBLEM
# kind: weak problem
# caught by: weak problems
# left out of: tests
# problem: its own


def reference_fn(q, k, v):
    return v * jnp.ones_like(q)


def compute_flops():
    return SEQ * HEAD_DIM


def _block(q_ref, k_ref, v_ref, o_ref):
    o_ref[...] = v_ref[pl.ds(pl.multiple_of(pl.program_id(0) * BQ, BQ), BQ)]
