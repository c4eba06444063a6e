"""Cheat 30: has the host compute, by an annotation of the compiler's."""
# rejected as: HOST_CALLBACK
# kind: host callback
# caught by: tokens
# left out of: tests

from jax.experimental.compute_on import compute_on

_honest = kernel_fn


def _on_the_host(*inputs):
    try:
        asked = compute_on(reference_fn, compute_type="device_host", out_memory_spaces=jax.memory.Space.Device)
    except TypeError:  # in JAX 0.10 it is a context
        with compute_on("device_host"):
            return jax.jit(reference_fn)(*inputs)
    return asked(*inputs)


def kernel_fn(q, k, v):
    return _honest(q, k, v) * 0 + _on_the_host(q, k, v)
