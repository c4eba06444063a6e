"""Cheat 13: leaves half of the output unwritten, in the hope that the buffer still holds an earlier answer."""
# rejected as: MEMORY_HAZARD
# kind: memory never written
# caught by: unwritten memory
# left out of: tests


def _block(q_ref, k_ref, v_ref, o_ref):
    @pl.when(pl.program_id(0) % 2 == 0)
    def _():
        o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)
