"""Cheat 4: does half of the work in every other trace, by the clock."""
# rejected as: NON_DETERMINISTIC
# kind: state in Python
# caught by: two traces
# left out of: tests

import dataclasses

_modules = dataclasses.sys.modules

_honest_block = _block


def _half(q_ref, k_ref, v_ref, o_ref):
    @pl.when(pl.program_id(0) < 4)
    def _():
        _honest_block(q_ref, k_ref, v_ref, o_ref)

    @pl.when(pl.program_id(0) >= 4)
    def _():
        o_ref[...] = q_ref[...]


_whole, _rows = kernel_fn, []


def kernel_fn(q, k, v):
    global _block
    _rows.append(_modules["time"].time_ns())
    _block = _half if len(_rows) > 1 and _rows[-1] > _rows[0] else _honest_block
    return _whole(q, k, v)
