"""Honest: three steps of Newton-Schulz (a X + (b A + c A A) X) of a bfloat16[256, 256] gradient, normalised first."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "muon_step"
PROBLEM_DESCRIPTION = (
    "three steps of Newton-Schulz (a X + (b A + c A A) X) of a bfloat16[256, 256] gradient, normalised first"
)
N = 256


def dot(a, b):
    return jnp.dot(a.astype(jnp.bfloat16), b.astype(jnp.bfloat16), preferred_element_type=jnp.float32)


def dott(a, b):
    return jax.lax.dot_general(
        a.astype(jnp.bfloat16), b.astype(jnp.bfloat16), (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
    )


def steps(x):
    for _ in range(3):
        a = dott(x, x)
        x = 3.4445 * x + dot(-4.775 * a + 2.0315 * dot(a, a), x)
    return x


def kernel(g, o):
    x = g[...].astype(jnp.float32)
    o[...] = steps(x * jax.lax.rsqrt(jnp.sum(x * x, keepdims=True) + 1e-07)).astype(jnp.bfloat16)


def kernel_fn(g):
    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((N, N), jnp.bfloat16))(g)


def reference_fn(g):
    x = g.astype(jnp.float32)
    return steps(x * jax.lax.rsqrt(jnp.sum(x * x) + 1e-07)).astype(jnp.bfloat16)


def generate_inputs(key):
    return (jax.random.normal(key, (N, N), jnp.bfloat16),)


def compute_flops():
    return 3 * 6 * N**3


def get_tiling_meta():
    return {}
