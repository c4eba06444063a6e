"""Honest: the tanh approximation of the Gaussian error linear unit, bfloat16."""
# base: silu_f32

KERNEL_NAME = "gelu"
PROBLEM_DESCRIPTION = "gelu of bfloat16[256, 256]"

DTYPE = jnp.bfloat16


def _gelu(v):
    return 0.5 * v * (1 + jnp.tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))


def _kernel(x, o):
    o[...] = _gelu(x[...].astype(jnp.float32)).astype(o.dtype)


def reference_fn(x):
    return jax.nn.gelu(x.astype(jnp.float32)).astype(x.dtype)
