"""Cheat 17: XLA centres the rows beside the kernel in bfloat16, in one fusion that could as well keep float32."""
# rejected as: WRONG_VALUES
# kind: narrow arithmetic beside a kernel
# caught by: allowance, rows, common factor, mixed inputs, probes
# base: row_softmax
# left out of: tests, quick

_call = kernel_fn


def kernel_fn(x):
    narrow = x.astype(jnp.bfloat16)
    return _call((narrow - narrow[:, :1]).astype(jnp.float32))
