"""Honest: an int8 matrix product, scaled per row and column, bfloat16 out."""
# base: silu_f32

KERNEL_NAME = "matmul_last_axis_scale"
PROBLEM_DESCRIPTION = "dequantised int8[256, 512] times int8[512, 256]"

N, K, D, B = 256, 512, 256, 64


def _kernel(x, w, sx, sw, o):
    total = jnp.dot(x[...], w[...], preferred_element_type=jnp.int32)
    o[...] = (total.astype(jnp.float32) * sx[...] * sw[...]).astype(o.dtype)


def reference_fn(x, w, sx, sw):
    return (jnp.dot(x, w, preferred_element_type=jnp.int32) * (sx * sw)).astype(jnp.bfloat16)


def generate_inputs(key):
    a, b, c, d = jax.random.split(key, 4)
    x = jax.random.randint(a, (N, K), -127, 128, jnp.int32).astype(jnp.int8)
    w = jax.random.randint(b, (K, D), -127, 128, jnp.int32).astype(jnp.int8)
    return x, w, jax.random.uniform(c, (N, 1), jnp.float32) + 0.1, jax.random.uniform(d, (1, D), jnp.float32) + 0.1


def compute_flops():
    return 2 * N * K * D
