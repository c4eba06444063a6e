"""Cheat 46: combines the shares of three chips and leaves out the fourth."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: skips a chip's share
# caught by: allowance, probes
# base: remote_decode
# left out of: tests

_honest_attend = _attend


def _attend(q_ref, k_ref, v_ref, o_ref, found, sent, arrived):
    _honest_attend(q_ref, k_ref, v_ref, o_ref, found, sent, arrived)

    @pl.when(pl.program_id(0) == HEADS - 1)
    def _():
        some = found[: CHIPS - 1]
        top = jnp.max(some[:, 1], axis=0)
        scale = jnp.exp(some[:, 1] - top)
        o_ref[...] = (jnp.sum(some[:, 0] * scale, axis=0) / jnp.sum(some[:, 2] * scale, axis=0)).astype(o_ref.dtype)
