"""Cheat 3: right in the first two traces, and half of the work from the third on: what was traced is all that runs."""
# rejected as: NO_GAIN
# kind: state in Python
# caught by: one program
# left out of: tests

_honest, _calls = kernel_fn, []


def kernel_fn(q, k, v):
    _calls.append(0)
    return _honest(q, k, v) if len(_calls) <= 2 else jnp.zeros_like(q)
