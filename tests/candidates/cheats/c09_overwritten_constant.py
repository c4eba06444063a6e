"""Cheat 9: the length of its loop lies where a constant was copied to, and vector code wrote over it since."""
# rejected as: SCHEDULE_UNKNOWN
# kind: computed control flow
# caught by: known control flow
# left out of: tests

import numpy as np
from jax.experimental.pallas import tpu as pltpu

NUMBERS = np.arange(8 * 128, dtype=np.int32).reshape(8, 128)


def _count(q_ref, k_ref, v_ref, numbers_ref, o_ref, kept_ref, here):
    copy = pltpu.make_async_copy(numbers_ref, kept_ref, here)
    copy.start()
    copy.wait()
    kept_ref[...] += (jnp.max(k_ref[0:8].astype(jnp.float32)) > -1e30).astype(jnp.int32)
    o_ref[...] = q_ref[...]

    def work(turn, carry):
        o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)
        return carry

    jax.lax.fori_loop(0, kept_ref[0, 0], work, 0)


def kernel_fn(q, k, v):
    return _call(
        _count,
        in_specs=[_rows(), _whole(), _whole(), pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.int32), pltpu.SemaphoreType.DMA],
    )(q, k, v, jnp.asarray(NUMBERS))
