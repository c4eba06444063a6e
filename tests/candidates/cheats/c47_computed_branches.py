"""Cheat 47: the work is behind two branches on a computed value, one of them entered and the other one passed by."""
# rejected as: NO_GAIN
# kind: computed branches
# caught by: known control flow
# left out of: tests

BQ = 256
HALF = BQ // 2


def _half(q_ref, k_ref, v_ref, o_ref, part):
    rows = pl.ds(part * HALF, HALF)
    o_ref[rows, :] = _attend(q_ref[rows, :], k_ref[...], v_ref[...], pl.program_id(0) * BQ + part * HALF)


def _block(q_ref, k_ref, v_ref, o_ref):
    largest = jnp.max(jnp.abs(q_ref[...].astype(jnp.float32)))

    def work(part):
        return lambda: _half(q_ref, k_ref, v_ref, o_ref, part)

    def nothing():
        o_ref[0:8, :] = q_ref[0:8, :]

    jax.lax.cond(largest >= 0.0, work(0), nothing)
    jax.lax.cond(largest < 0.0, nothing, work(1))
