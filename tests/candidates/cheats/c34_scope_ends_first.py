"""Cheat 34: a copy out of scoped memory is waited for after the scope, when others may have the memory."""
# rejected as: MEMORY_HAZARD
# kind: copy under way
# caught by: late copies
# left out of: tests
# said: the end of the scope
# base: c34_stores_over_an_arrival


def _block(q_ref, k_ref, v_ref, o_ref, kept, left):
    i = pl.program_id(0)
    rows = o_ref.at[pl.ds(i * BQ, BQ)]

    def leave(block):
        block[...] = _attend(q_ref[...], k_ref[...], v_ref[...], i * BQ)
        pltpu.make_async_copy(block, rows, left.at[0]).start()

    pl.run_scoped(leave, pltpu.VMEM((BQ, HEAD_DIM), q_ref.dtype))
    kept[0] = jnp.zeros_like(q_ref[...])
    pltpu.make_async_copy(rows, rows, left.at[0]).wait()
