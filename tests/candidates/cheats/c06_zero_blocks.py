"""Cheat 6: takes a block of queries for padding where all of it is nearly zero, and leaves it out."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: usual values only
# caught by: mixed inputs, allowance, probes
# left out of: tests

BQ = 256


def _looked_at(q_ref):
    return q_ref[...]


def _block(q_ref, k_ref, v_ref, o_ref):
    empty = jnp.max(jnp.abs(_looked_at(q_ref).astype(jnp.float32))) < 0.02

    @pl.when(empty)
    def _():
        o_ref[...] = jnp.zeros_like(o_ref)

    @pl.when(jnp.logical_not(empty))
    def _():
        o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)
