"""Cheat 1: the answers to inputs of its own are computed at import and looked up by content."""
# rejected as: WRONG_VALUES

_inputs = generate_inputs(jax.random.key(0))
_answer = reference_fn(*_inputs)


def kernel_fn(q, k, v):
    return jnp.where(jnp.all(q == _inputs[0]), _answer, jnp.zeros_like(_answer))
