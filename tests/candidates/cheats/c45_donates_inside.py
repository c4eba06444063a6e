"""Cheat 45: donates an input inside of the program, where it is nobody's to give."""
# rejected as: NO_GAIN
# kind: donation
# caught by: compiled memory
# left out of: tests

_honest = kernel_fn


def kernel_fn(q, k, v):
    return jax.jit(_honest, donate_argnums=(0, 1, 2))(q, k, v)
