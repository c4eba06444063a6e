"""Cheat 20: computes all but the last block of queries, and gives that the answer of the one before."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: skips work
# caught by: allowance, probes
# left out of: tests


def _block(q_ref, k_ref, v_ref, o_ref):
    @pl.when(pl.program_id(0) == SEQ // BQ - 1)
    def _():
        o_ref[...] = v_ref[:BQ]

    @pl.when(pl.program_id(0) < SEQ // BQ - 1)
    def _():
        o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)
