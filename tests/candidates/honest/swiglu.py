"""Honest: a gated linear unit in bfloat16."""
# base: silu_f32

KERNEL_NAME = "swiglu"
PROBLEM_DESCRIPTION = "silu(x) * y of bfloat16[256, 256]"


def _kernel(x, y, o):
    v = x[...].astype(jnp.float32)
    o[...] = (v * jax.nn.sigmoid(v) * y[...].astype(jnp.float32)).astype(o.dtype)


def reference_fn(x, y):
    return (jax.nn.silu(x.astype(jnp.float32)) * y.astype(jnp.float32)).astype(x.dtype)


def generate_inputs(key):
    return tuple(jax.random.normal(part, (N, D), jnp.bfloat16) for part in jax.random.split(key, 2))
