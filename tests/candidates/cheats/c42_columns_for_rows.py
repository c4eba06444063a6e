"""Cheat 42: copies, and says that its result is laid out by columns: one reader of the call makes a transpose of it."""
# rejected as: CANNOT_VERIFY
# kind: two readers of one call
# caught by: one layout
# base: transpose

import dataclasses


def _copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def _copied(x):
    return pl.pallas_call(_copy, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


_calls = dataclasses.sys.modules["jax._src.tpu_custom_call"]
_written = _calls.mlir.custom_call


def _by_columns(*args, **options):
    return _written(*args, **options | {"result_layouts": [(0, 1)]})


_calls.mlir.custom_call = _by_columns


def kernel_fn(x):
    return _copied(x).T
