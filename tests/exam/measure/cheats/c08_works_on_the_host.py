"""Cheat 8: the work is handed to a thread of the host, where no clock of the device sees it."""
# rejected as: LOWERING_FAILED, HOST_CALLBACK

import numpy as np


def _work(q, k, v):
    scores = np.where(np.tri(SEQ, dtype=bool), np.asarray(q) @ np.asarray(k).T * HEAD_DIM**-0.5, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True) @ np.asarray(v)).astype(np.float32)


def kernel_fn(q, k, v):
    return jax.pure_callback(_work, jax.ShapeDtypeStruct((SEQ, HEAD_DIM), jnp.float32), q, k, v)
