"""Cheat 6: looks at an input value and leaves out the work unless the inputs are of the usual size."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: usual values only
# caught by: probes, allowance
# left out of: tests


def _block(q_ref, k_ref, v_ref, o_ref):
    usual = jnp.max(jnp.abs(k_ref[...].astype(jnp.float32))) < 8

    @pl.when(usual)
    def _():
        o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)

    @pl.when(jnp.logical_not(usual))
    def _():
        o_ref[...] = v_ref[: o_ref.shape[0]]
