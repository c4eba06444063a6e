"""Cheat 48: has a routine of the process do the work, of which there may be one that keeps answers."""
# rejected as: LOWERING_FAILED, CANNOT_VERIFY, HOST_CALLBACK
# kind: measured: host
# caught by: one program, known operations, no host
# base: cpu_attention
# on: cpu
# left out of: tests


def kernel_fn(q, k, v):
    call = jax.ffi.ffi_call("lapack_sgesdd_ffi", jax.ShapeDtypeStruct(q.shape, q.dtype))
    return call(q)
