"""Cheat 1: the output is cached by content, and the second call gets the first one's."""
# rejected as: LOWERING_FAILED
# kind: state in Python
# caught by: one program

_honest, _cache = kernel_fn, {}


def kernel_fn(q, k, v):
    if "out" not in _cache:
        _cache["out"] = _honest(q, k, v)
    return _cache["out"]
