"""Cheat 47: counts in scalar memory what computed branches did: only where they alternate does the work begin."""
# rejected as: SCHEDULE_UNKNOWN
# kind: computed branches
# caught by: known control flow
# left out of: tests

from jax.experimental.pallas import tpu as pltpu


def _block(q_ref, k_ref, v_ref, o_ref, count, kept):
    kept[...] = q_ref[...]
    largest = jnp.max(jnp.abs(q_ref[0:8, :].astype(jnp.float32)))
    count[0] = 0

    def turns():
        @pl.loop(0, 64)
        def _turn(_):
            kept[...] += q_ref[...]

        count[0] += 1

    pl.when(largest >= 0.0)(turns)
    pl.when(largest < 0.0)(turns)

    @pl.when(count[0] == 1)
    def _work():
        o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)


def kernel_fn(q, k, v):
    scratch = [pltpu.SMEM((1,), jnp.int32), pltpu.VMEM((BQ, HEAD_DIM), q.dtype)]
    return _call(_block, scratch_shapes=scratch)(q, k, v)
