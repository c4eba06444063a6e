"""Cheat 33: what is left on a semaphore is cleared by a signal of a negative amount, in place of a wait."""
# rejected as: MEMORY_HAZARD
# kind: semaphore left
# caught by: semaphores
# said: negative_amount

from jax.experimental.pallas import tpu as pltpu


def _block(q_ref, k_ref, v_ref, o_ref, done):
    o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)
    pl.semaphore_signal(done, 1 - 2 * (pl.program_id(0) % 2))


def kernel_fn(q, k, v):
    return _call(_block, scratch_shapes=[pltpu.SemaphoreType.REGULAR])(q, k, v)
