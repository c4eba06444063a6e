"""Honest: the difference of two softmaxes times values, bfloat16 256 x 128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "differential_attention"
PROBLEM_DESCRIPTION = "the difference of two softmaxes times values, bfloat16 256 x 128"
S, D, B = 256, 128, 128


def soft(q, k):
    s = jax.lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32) * D ** (-0.5)
    e = jnp.exp(s - s.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def kernel(lam, q1, q2, k1, k2, v, o):
    p = soft(q1[...], k1[...]) - lam[0] * soft(q2[...], k2[...])
    o[...] = jnp.dot(p.astype(jnp.bfloat16), v[...], preferred_element_type=jnp.float32)


def kernel_fn(lam, q1, q2, k1, k2, v):
    rows, whole = (pl.BlockSpec((B, D), lambda i: (i, 0)), pl.BlockSpec((S, D), lambda i: (0, 0)))
    return pl.pallas_call(
        kernel,
        grid=(S // B,),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), rows, rows, whole, whole, whole],
        out_specs=rows,
        out_shape=jax.ShapeDtypeStruct((S, D), jnp.float32),
    )(lam, q1, q2, k1, k2, v)


def reference_fn(lam, q1, q2, k1, k2, v):
    return jnp.dot((soft(q1, k1) - lam[0] * soft(q2, k2)).astype(jnp.bfloat16), v, preferred_element_type=jnp.float32)


def generate_inputs(key):
    k = jax.random.split(key, 6)
    return (
        jax.random.uniform(k[0], (1,), jnp.float32, 0.2, 0.8),
        *(jax.random.normal(x, (S, D), jnp.bfloat16) for x in k[1:]),
    )


def compute_flops():
    return 6 * S * S * D


def get_tiling_meta():
    return {}
