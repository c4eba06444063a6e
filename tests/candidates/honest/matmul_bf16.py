"""Honest: a tiled matrix product, bfloat16 with float32 accumulation."""
# base: matmul_f32

KERNEL_NAME = "matmul_bf16"
PROBLEM_DESCRIPTION = "bfloat16[256, 512] times bfloat16[512, 256]"


def reference_fn(x, w):
    return jnp.dot(x, w, preferred_element_type=jnp.float32).astype(x.dtype)


def generate_inputs(key):
    a, b = jax.random.split(key)
    return jax.random.normal(a, (M, K), jnp.bfloat16), jax.random.normal(b, (K, N), jnp.bfloat16)
