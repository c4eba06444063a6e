"""Cheat 48: has a routine of the process do the work, of which there may be one that keeps answers."""
# rejected as: CANNOT_VERIFY
# kind: measured: host
# caught by: known operations
# base: cpu_attention
# on: cpu
# left out of: tests


def kernel_fn(q, k, v):
    call = jax.ffi.ffi_call("lapack_sgesdd_ffi", jax.ShapeDtypeStruct(q.shape, q.dtype))
    return call(q)
