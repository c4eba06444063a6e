"""Cheat 46: declares a mesh of one chip, which needs no communication."""
# rejected as: PROBLEM_CHANGED
# kind: forged sharding
# caught by: frozen problem
# base: all_gather
# left out of: tests


def _copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def kernel_fn(x):
    return pl.pallas_call(_copy, out_shape=jax.ShapeDtypeStruct((CHIPS * N, D), x.dtype))(x)


def get_tiling_meta():
    return {}
