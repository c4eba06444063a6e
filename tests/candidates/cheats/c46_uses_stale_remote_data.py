"""Cheat 46: uses what others send before it has arrived."""
# rejected as: MEMORY_HAZARD
# kind: chips out of step
# caught by: late copies, chips that run ahead
# base: reduce_scatter
# left out of: tests


def _kernel(x, o, parts, sent, arrived):
    me, others = _everyone()
    parts[me] = x[0, pl.ds(me * N, N)]
    _meet(others)
    copies = [
        _send(x.at[0, pl.ds(other * N, N)], parts.at[me], sent.at[k], arrived.at[k], other)
        for k, other in enumerate(others)
    ]
    for copy in copies:
        copy.start()
    o[...] = (parts[0] + parts[1]) + (parts[2] + parts[3])
    for copy in copies:
        copy.wait()
