"""Cheat 44: carries a hundred megabytes of constants in its program."""
# rejected as: IMPORT_FAILED
# kind: more than a record holds
# caught by: complete record
# left out of: tests

import numpy as np

_honest = kernel_fn
_MUCH = np.arange(1 << 25, dtype=np.int32)


def kernel_fn(q, k, v):
    return _honest(q + jnp.sum(jnp.asarray(_MUCH)).astype(q.dtype) * 0, k, v)
