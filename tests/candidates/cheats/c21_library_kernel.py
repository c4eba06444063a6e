"""Cheat 21: somebody else's kernel."""
# rejected as: FORBIDDEN
# kind: library kernel
# caught by: static check

from jax.experimental.pallas.ops.tpu import flash_attention


def kernel_fn(q, k, v):
    return flash_attention.flash_attention(q[None, None], k[None, None], v[None, None], causal=True)[0, 0]
