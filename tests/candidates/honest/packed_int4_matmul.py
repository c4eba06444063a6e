"""Honest: a product with weights of four bits, eight of which share a word."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "packed_int4_matmul"
PROBLEM_DESCRIPTION = "x w s of bfloat16[128, 512], int4[512, 256] in words of uint32[64, 256], scales float32[1, 256]"

M, K, N, EACH = 128, 512, 256, 8


def _kernel(x, words, scales, o):
    rows = K // EACH
    total = jnp.zeros(o.shape, jnp.float32)
    for n in range(EACH):
        w = pltpu.unpack_elementwise(words[...], index=n, packed_dtype=jnp.int4, unpacked_dtype=jnp.int32)
        part = x[:, n * rows : (n + 1) * rows]
        total += jnp.dot(part, w.astype(jnp.bfloat16), preferred_element_type=jnp.float32)
    o[...] = (total * scales[...]).astype(o.dtype)


def kernel_fn(x, words, scales):
    return pl.pallas_call(_kernel, out_shape=jax.ShapeDtypeStruct((M, N), jnp.bfloat16))(x, words, scales)


def reference_fn(x, words, scales):
    nibbles = [(words >> 4 * n << 28).astype(jnp.int32) >> 28 for n in range(EACH)]
    w = jnp.concatenate(nibbles).astype(jnp.float32)
    return (jnp.dot(x.astype(jnp.float32), w, precision="highest") * scales).astype(jnp.bfloat16)


def generate_inputs(key):
    one, two, three = jax.random.split(key, 3)
    words = jax.random.bits(two, (K // EACH, N), jnp.uint32)
    return (
        jax.random.normal(one, (M, K), jnp.bfloat16),
        words,
        jax.random.uniform(three, (1, N), jnp.float32, 0.01, 0.02),
    )


def compute_flops():
    return 2 * M * K * N
