"""Cheat 40: metadata that asks the compiler to leave out operations with side effects."""
# rejected as: HOST_CALLBACK
# kind: host callback
# caught by: tokens
# left out of: tests

from jax.experimental.xla_metadata import set_xla_metadata

_honest = kernel_fn


def kernel_fn(q, k, v):
    with set_xla_metadata(xla_allow_dce_side_effecting_op="yes", _xla_compute_type="host", inlineable="false"):
        return _honest(q, k, v)
