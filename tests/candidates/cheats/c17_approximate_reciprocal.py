"""Cheat 17: divides by the hardware's estimate of a reciprocal, in float32."""
# rejected as: WRONG_VALUES
# kind: lower precision
# caught by: allowance
# left out of: tests
# base: row_softmax


def _kernel(x, o):
    e = jnp.exp(x[...] - jnp.max(x[...], axis=1, keepdims=True))
    o[...] = e * pl.reciprocal(jnp.sum(e, axis=1, keepdims=True), approx=True)
