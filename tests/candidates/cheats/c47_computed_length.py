"""Cheat 47: a loop turns as often as a computed value says, which is always the same."""
# rejected as: SCHEDULE_UNKNOWN
# kind: computed branches
# caught by: known control flow
# left out of: tests


def _block(q_ref, k_ref, v_ref, o_ref):
    turns = jnp.where(jnp.max(jnp.abs(q_ref[...].astype(jnp.float32))) >= 0.0, 1, 0)
    o_ref[...] = q_ref[...]

    def work(_, carry):
        o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)
        return carry

    jax.lax.fori_loop(0, turns, work, 0)
