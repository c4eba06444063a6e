"""Cheat 33: signals the barrier of all kernels once more than it waits for: whoever meets there next is let through."""
# rejected as: MEMORY_HAZARD
# kind: semaphore left
# caught by: semaphores
# left out of: tests
# said: dma_never_waited

from jax.experimental.pallas import tpu as pltpu


def _block(q_ref, k_ref, v_ref, o_ref):
    o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)

    @pl.when(pl.program_id(0) == 0)
    def _meet():
        barrier = pltpu.get_barrier_semaphore()
        pl.semaphore_signal(barrier, 2)
        pl.semaphore_wait(barrier, 1)


def kernel_fn(q, k, v):
    return _call(_block, compiler_params=pltpu.CompilerParams(collective_id=0))(q, k, v)
