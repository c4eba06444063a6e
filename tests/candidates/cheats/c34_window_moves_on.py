"""Cheat 34: copies each block out of the pipeline's own window and waits one step later, when that is refilled."""
# rejected as: MEMORY_HAZARD
# kind: copy under way
# caught by: late copies
# left out of: tests
# said: source_overwritten
# base: c34_stores_over_an_arrival


def _block(q_ref, k_ref, v_ref, o_ref, kept, left):
    i = pl.program_id(0)
    rows = o_ref.at[pl.ds(i * BQ, BQ)]
    early = pltpu.make_async_copy(q_ref, rows, left.at[0])

    @pl.when(i > 0)
    def _earlier():
        early.wait()
        before = o_ref.at[pl.ds((i - 1) * BQ, BQ)]
        pltpu.async_copy(kept.at[(i - 1) % 2], before, left.at[1]).wait()

    early.start()
    kept[i % 2] = _attend(q_ref[...], k_ref[...], v_ref[...], i * BQ)

    @pl.when(i == SEQ // BQ - 1)
    def _last():
        early.wait()
        pltpu.async_copy(kept.at[i % 2], rows, left.at[1]).wait()
