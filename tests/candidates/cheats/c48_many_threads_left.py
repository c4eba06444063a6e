"""Cheat 48: starts threads that go on working when its call has returned."""
# rejected as: LOWERING_FAILED
# kind: measured: host
# caught by: one program
# base: cpu_attention
# on: cpu
# left out of: tests

import dataclasses

_thread = dataclasses.sys.modules["_thread"]
_shape = jax.ShapeDtypeStruct((SEQ, HEAD_DIM), jnp.float32)


def _later(q, k, v):
    _thread.start_new_thread(reference_fn, (q, k, v))
    return q


def kernel_fn(q, k, v):
    return jax.experimental.io_callback(_later, _shape, q, k, v)
