"""Cheat 1: the output is cached, and later calls get the first one's."""
# rejected as: LOWERING_FAILED, NON_DETERMINISTIC

_honest, _cache = kernel_fn, {}


def kernel_fn(q, k, v):
    if "out" not in _cache:
        _cache["out"] = _honest(q, k, v)
    return _cache["out"]
