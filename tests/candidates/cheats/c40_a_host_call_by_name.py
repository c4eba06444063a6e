"""Cheat 40: an honest kernel in a scope that is named like a call of the host, to be taken for one later."""
# rejected as: NO_GAIN
# kind: text in names
# caught by: neutral text
# left out of: tests

SCOPE = "send(outfeed(xla_ffi_python_cpu_callback))"
_honest = kernel_fn


def kernel_fn(q, k, v):
    with jax.named_scope(SCOPE):
        return _honest(q, k, v)
