"""Cheat 24: inputs from a seed of its own choice."""
# rejected as: PROBLEM_CHANGED

_random = generate_inputs


def generate_inputs(key):
    return _random(jax.random.key(7))
