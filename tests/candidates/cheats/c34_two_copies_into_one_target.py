"""Cheat 34: a first guess of each block leaves at once, the answer after it into the same rows; the last wins."""
# rejected as: MEMORY_HAZARD
# kind: copy under way
# caught by: late copies
# left out of: tests
# said: target_overwritten
# base: c34_stores_over_an_arrival


def _block(q_ref, k_ref, v_ref, o_ref, kept, left):
    i = pl.program_id(0)
    rows = o_ref.at[pl.ds(i * BQ, BQ)]
    guess, answer = (pltpu.make_async_copy(kept.at[n], rows, left.at[n]) for n in range(2))
    kept[0] = v_ref[pl.ds(i * BQ, BQ)]
    guess.start()
    kept[1] = _attend(q_ref[...], k_ref[...], v_ref[...], i * BQ)
    answer.start()
    guess.wait()
    answer.wait()
