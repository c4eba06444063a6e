"""Cheat 3: right for as many calls as the judge needs to trace it. What was traced is all that ever runs: harmless."""
# rejected as: PASS

_honest, _calls = kernel_fn, []


def kernel_fn(q, k, v):
    _calls.append(0)
    return _honest(q, k, v) if len(_calls) <= 2 else jnp.zeros_like(q)
