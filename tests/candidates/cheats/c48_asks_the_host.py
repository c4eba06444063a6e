"""Cheat 48: hands the work to Python on a thread of the host, where no clock of the device sees it."""
# rejected as: LOWERING_FAILED
# kind: measured: host
# caught by: one program
# base: cpu_attention
# on: cpu
# left out of: tests

import numpy as np

_shape = jax.ShapeDtypeStruct((SEQ, HEAD_DIM), jnp.float32)


def kernel_fn(q, k, v):
    return jax.pure_callback(lambda q, k, v: np.asarray(reference_fn(q, k, v)), _shape, q, k, v)
