"""Honest: a matrix product with a rectifier after it."""
# base: matmul_bf16

KERNEL_NAME = "bias_relu_matmul"
PROBLEM_DESCRIPTION = "relu(bfloat16[256, 512] times bfloat16[512, 256] - 4)"


def _finished(total):
    return jnp.maximum(total - 4.0, 0.0)


def reference_fn(x, w):
    return jax.nn.relu(jnp.dot(x, w, preferred_element_type=jnp.float32) - 4.0).astype(x.dtype)
