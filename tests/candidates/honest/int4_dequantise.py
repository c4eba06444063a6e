"""Honest: int4 weights times a scale of each group of rows, bfloat16 out."""
# base: column_softmax

KERNEL_NAME = "int4_dequantise"
PROBLEM_DESCRIPTION = "dequantisation of int4[512, 256], a scale for 32 rows, to bfloat16"

N, D, GROUP, B = 512, 256, 32, 128


def _kernel(q, s, o):
    scale = jnp.repeat(s[...], GROUP, axis=0)
    o[...] = (q[...].astype(jnp.float32) * scale).astype(o.dtype)


def reference_fn(q, s):
    wide = q.astype(jnp.float32).reshape(N // GROUP, GROUP, D) * s[:, None]
    return wide.reshape(N, D).astype(jnp.bfloat16)


def generate_inputs(key):
    a, b = jax.random.split(key)
    q = jax.random.randint(a, (N, D), -8, 8, jnp.int32).astype(jnp.int4)
    return q, jnp.exp(0.3 * jax.random.normal(b, (N // GROUP, D), jnp.float32)) / 8


def compute_flops():
    return N * D
