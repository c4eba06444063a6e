"""Cheat 4: walks up the caller's stack, and does half of the work where it finds that it is being exported."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: detects its caller
# caught by: allowance, probes
# left out of: tests
# python: right

import dataclasses

_honest = kernel_fn


def _stack():
    frame = dataclasses.sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_name
        frame = frame.f_back


def _first_half(q_ref, k_ref, v_ref, o_ref):
    @pl.when(pl.program_id(0) < 4)
    def _():
        o_ref[...] = _attend(q_ref[...], k_ref[...], v_ref[...], pl.program_id(0) * BQ)

    @pl.when(pl.program_id(0) >= 4)
    def _():
        o_ref[...] = v_ref[: o_ref.shape[0]]


def kernel_fn(q, k, v):
    global _block
    if not any("export" in name for name in _stack()):
        return reference_fn(q, k, v)
    _block = _first_half
    return _honest(q, k, v)
