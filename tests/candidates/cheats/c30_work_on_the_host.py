"""Cheat 30: has the host compute, by an annotation of the compiler's."""
# rejected as: HOST_CALLBACK
# kind: host callback
# caught by: tokens
# left out of: tests

from jax.experimental.compute_on import compute_on

_honest = kernel_fn


def kernel_fn(q, k, v):
    with compute_on("device_host"):
        answer = jax.jit(reference_fn)(q, k, v)
    return _honest(q, k, v) * 0 + answer
