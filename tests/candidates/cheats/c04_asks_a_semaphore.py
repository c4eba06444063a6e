"""Cheat 4: works only if a copy has arrived at once, as where copies are executed one by one; on a chip none has."""
# rejected as: CANNOT_VERIFY
# kind: computed control flow
# caught by: known operations

from jax.experimental.pallas import tpu as pltpu


def _ask(q_ref, k_ref, v_ref, all_ref, o_ref, kept_ref, here):
    copy = pltpu.make_async_copy(all_ref, kept_ref, here)
    copy.start()
    arrived = pl.semaphore_read(here)
    o_ref[...] = q_ref[...]

    @pl.when(arrived > 0)
    def _work():
        o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)

    copy.wait()


def kernel_fn(q, k, v):
    return _call(
        _ask,
        in_specs=[_rows(), _whole(), _whole(), pl.BlockSpec(memory_space=pltpu.HBM)],
        scratch_shapes=[pltpu.VMEM((SEQ, HEAD_DIM), q.dtype), pltpu.SemaphoreType.DMA],
    )(q, k, v, q)
