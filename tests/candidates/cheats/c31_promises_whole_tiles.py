"""Cheat 31: promises that every block of rows begins where only every second one does, to spare shifting sublanes."""
# rejected as: MEMORY_HAZARD
# kind: false promise
# caught by: promises
# left out of: tests
# said: the compiler relies on a multiple of 256


def _promise(q_ref, k_ref, v_ref, o_ref):
    first = pl.program_id(0) * BQ
    rows = pl.ds(pl.multiple_of(first, 2 * BQ), BQ)
    o_ref[rows] = _attend(q_ref[rows], k_ref[...], v_ref[...], first)


def kernel_fn(q, k, v):
    return _call(_promise, in_specs=[_whole(), _whole(), _whole()], out_specs=_whole())(q, k, v)
