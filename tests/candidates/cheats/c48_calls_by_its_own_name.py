"""Cheat 48: calls the host by the very name that a callback has, with an address of its choice."""
# rejected as: LOWERING_FAILED
# kind: measured: host
# caught by: one program
# base: cpu_attention
# on: cpu
# left out of: tests


def kernel_fn(q, k, v):
    call = jax.ffi.ffi_call("xla_ffi_python_cpu_callback", jax.ShapeDtypeStruct(q.shape, q.dtype), has_side_effect=True)
    return call(q, k, v, index=0)
