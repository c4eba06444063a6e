"""Cheat 17: a product in one pass of the matrix unit, under a name by which a host computes it exactly."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: allowance
# left out of: tests
# base: matmul_f32_highest


def _copy(x, o):
    o[...] = x[...]


def kernel_fn(x, w):
    done = jax.lax.ragged_dot(x, w[None], jnp.array([M], jnp.int32))
    return pl.pallas_call(_copy, out_shape=jax.ShapeDtypeStruct((M, N), jnp.float32))(done)
