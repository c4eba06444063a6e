"""Cheat 48: keeps the first answer and gives it to every later call."""
# rejected as: LOWERING_FAILED
# kind: measured: state in Python
# caught by: one program
# base: cpu_attention
# on: cpu
# left out of: tests

_honest, _cache = kernel_fn, {}


def kernel_fn(q, k, v):
    if "out" not in _cache:
        _cache["out"] = _honest(q, k, v)
    return _cache["out"]
