"""Cheat 17: XLA rounds to bfloat16 and back beside the kernel, which its simplifier may take for nothing."""
# rejected as: WRONG_VALUES
# kind: narrow arithmetic beside a kernel
# caught by: allowance, rows, common factor, mixed inputs, probes
# base: group_norm
# left out of: tests, quick

_call = kernel_fn


def kernel_fn(x):
    return _call((x * jnp.float32(1.0)).astype(jnp.bfloat16).astype(jnp.float32))
