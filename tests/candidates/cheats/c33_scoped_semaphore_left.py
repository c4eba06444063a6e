"""Cheat 33: every step signals a semaphore of its own scope and leaves it so, for the next kernel to trip over."""
# rejected as: MEMORY_HAZARD
# kind: semaphore left
# caught by: semaphores
# said: dma_never_waited

from jax.experimental.pallas import tpu as pltpu


def _block(q_ref, k_ref, v_ref, o_ref):
    o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)
    pl.run_scoped(lambda done: pl.semaphore_signal(done, 1), pltpu.SemaphoreType.REGULAR)
