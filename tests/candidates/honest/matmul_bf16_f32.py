"""Honest: a tiled matrix product, bfloat16 in and float32 out."""
# base: matmul_bf16

KERNEL_NAME = "matmul_bf16_f32"
PROBLEM_DESCRIPTION = "bfloat16[256, 512] times bfloat16[512, 256] in float32"


def reference_fn(x, w):
    return jnp.dot(x, w, preferred_element_type=jnp.float32)
