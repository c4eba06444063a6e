"""Cheat 21: a call of a library's routine beside the kernel."""
# rejected as: LOWERING_FAILED
# kind: library kernel
# caught by: one program
# left out of: tests

_honest = kernel_fn


def kernel_fn(q, k, v):
    done = jax.ffi.ffi_call("xla_ffi_attention", jax.ShapeDtypeStruct(q.shape, q.dtype))(q, k, v)
    return _honest(q, k, v) + 0 * done
