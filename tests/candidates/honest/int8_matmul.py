"""Honest: a tiled product of int8 matrices into int32."""
# base: matmul_f32

KERNEL_NAME = "int8_matmul"
PROBLEM_DESCRIPTION = "int8[256, 512] times int8[512, 256] into int32"


def _product(x, w):
    return jnp.dot(x, w, preferred_element_type=jnp.int32)


def reference_fn(x, w):
    return jnp.dot(x, w, preferred_element_type=jnp.int32)


def generate_inputs(key):
    a, b = jax.random.split(key)
    return tuple(jax.random.randint(k, s, -127, 128, jnp.int32).astype(jnp.int8) for k, s in ((a, (M, K)), (b, (K, N))))
