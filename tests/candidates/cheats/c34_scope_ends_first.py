"""Cheat 34: a copy out of scoped memory is waited for after the scope, when others may have the memory."""
# rejected as: MEMORY_HAZARD
# kind: copy under way
# caught by: late copies
# left out of: tests
# said: the end of the scope

from jax.experimental.pallas import tpu as pltpu


def _block(q_ref, k_ref, v_ref, o_ref, kept, left):
    i = pl.program_id(0)
    rows = o_ref.at[pl.ds(i * BQ, BQ)]

    def leave(block):
        block[...] = _attend(q_ref[...], k_ref[...], v_ref[...], i * BQ)
        pltpu.make_async_copy(block, rows, left.at[0]).start()

    pl.run_scoped(leave, pltpu.VMEM((BQ, HEAD_DIM), q_ref.dtype))
    kept[0] = jnp.zeros_like(q_ref[...])
    pltpu.make_async_copy(rows, rows, left.at[0]).wait()


def kernel_fn(q, k, v):
    whole = pl.BlockSpec((SEQ, HEAD_DIM), lambda i: (0, 0))
    rows = pl.BlockSpec((BQ, HEAD_DIM), lambda i: (i, 0))
    return pl.pallas_call(
        _block,
        out_shape=jax.ShapeDtypeStruct((SEQ, HEAD_DIM), q.dtype),
        grid=(SEQ // BQ,),
        in_specs=[rows, whole, whole],
        out_specs=pl.BlockSpec(memory_space=pltpu.HBM),
        scratch_shapes=[pltpu.VMEM((2, BQ, HEAD_DIM), q.dtype), pltpu.SemaphoreType.DMA((2,))],
    )(q, k, v)
