"""Cheat 24: inputs of a problem of its own that are the same for every key."""
# rejected as: INSENSITIVE, WRONG_VALUES
# kind: weak problem
# caught by: probes, allowance, mixed inputs
# problem: its own
# left out of: tests

_random = generate_inputs
_ANSWER = reference_fn(*generate_inputs(jax.random.key(7)))


def generate_inputs(key):
    return _random(jax.random.key(7))


def kernel_fn(q, k, v):
    def copy(a_ref, o_ref):
        o_ref[...] = a_ref[...]

    return pl.pallas_call(copy, out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype))(_ANSWER)
