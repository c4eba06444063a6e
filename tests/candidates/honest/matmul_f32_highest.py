"""Honest: a tiled matrix product of float32 at the highest precision."""
# base: matmul_f32

KERNEL_NAME = "matmul_f32_highest"
PROBLEM_DESCRIPTION = "float32[256, 512] times float32[512, 256], highest precision"


def _product(x, w):
    return jnp.dot(x, w, precision="highest", preferred_element_type=jnp.float32)


def reference_fn(x, w):
    return jnp.dot(x, w, precision="highest")
