"""Cheat 5: the maximum of a row leaves out its last element, which matters where that one is far above the others."""
# rejected as: WRONG_VALUES, NOT_FINITE
# kind: extreme without an end
# caught by: inputs of one sign
# base: row_softmax
# left out of: tests, quick


def _kernel(x, o):
    e = jnp.exp(x[...] - jnp.max(x[:, : D - 1], axis=1, keepdims=True))
    o[...] = e / jnp.sum(e, axis=1, keepdims=True)
