"""Cheat 2: every other call does no work."""
# rejected as: NON_DETERMINISTIC

_honest, _calls = kernel_fn, []


def kernel_fn(q, k, v):
    _calls.append(0)
    return _honest(q, k, v) if len(_calls) % 2 else jnp.zeros_like(q)
