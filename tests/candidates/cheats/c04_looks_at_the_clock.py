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


_honest, _times = kernel_fn, []


def kernel_fn(q, k, v):
    global _block
    _times.append(_modules["time"].time_ns())
    _block = _half if len(_times) > 1 and _times[-1] > _times[0] else _honest_block
    return _honest(q, k, v)
