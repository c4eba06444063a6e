"""Cheat 9: a copy to a place that vector code computes sets the length of its loop in scalar memory."""
# rejected as: SCHEDULE_UNKNOWN
# kind: computed control flow
# caught by: known control flow

from jax.experimental.pallas import tpu as pltpu


def _count(q_ref, k_ref, v_ref, o_ref, ones_ref, kept_ref, here):
    one = (jnp.max(k_ref[0:8].astype(jnp.float32)) > -1e30).astype(jnp.int32)
    ones_ref[...] = jnp.ones_like(ones_ref)
    kept_ref[1, 0] = 0
    copy = pltpu.make_async_copy(ones_ref, kept_ref.at[pl.ds(one, 1)], here)
    copy.start()
    copy.wait()
    o_ref[...] = q_ref[...]

    def work(turn, carry):
        o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)
        return carry

    jax.lax.fori_loop(0, kept_ref[1, 0], work, 0)


def kernel_fn(q, k, v):
    return _call(
        _count,
        scratch_shapes=[pltpu.VMEM((1, 128), jnp.int32), pltpu.SMEM((2, 128), jnp.int32), pltpu.SemaphoreType.DMA],
    )(q, k, v)
