"""Honest: the gated delta rule of float32 keys [128, 64] and values [128, 128], step by step."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "gated_delta"
PROBLEM_DESCRIPTION = "the gated delta rule of float32 keys [128, 64] and values [128, 128], step by step"
T, K, V, B = 128, 64, 128, 32


def step(s, q, k, v, a, b):
    s = a * s
    s = s + k * (b * (v - jnp.sum(s * k, axis=0, keepdims=True)))
    return (s, jnp.sum(s * q, axis=0, keepdims=True))


def kernel(q, k, v, a, b, o, s):

    @pl.when(pl.program_id(0) == 0)
    def _():
        s[...] = jnp.zeros_like(s)

    def body(t, state):
        state, o[t] = step(state, q[t], k[t], v[t], a[t], b[t])
        return state

    s[...] = jax.lax.fori_loop(0, B, body, s[...], unroll=4)


def kernel_fn(q, k, v, a, b):

    def at(*s):
        return pl.BlockSpec((B, *s), lambda t: (t, 0, 0))

    return pl.pallas_call(
        kernel,
        grid=(T // B,),
        in_specs=[at(K, 1), at(K, 1), at(1, V), at(1, 1), at(1, 1)],
        out_specs=at(1, V),
        out_shape=jax.ShapeDtypeStruct((T, 1, V), jnp.float32),
        scratch_shapes=[pltpu.VMEM((K, V), jnp.float32)],
    )(q, k, v, a, b)


def reference_fn(q, k, v, a, b):
    return jax.lax.scan(lambda s, x: step(s, *x), jnp.zeros((K, V)), (q, k, v, a, b))[1]


def generate_inputs(key):
    k = jax.random.split(key, 5)

    def unit(x):
        return x / jnp.linalg.norm(x, axis=1, keepdims=True)

    return (
        unit(jax.random.normal(k[0], (T, K, 1))),
        unit(jax.random.normal(k[1], (T, K, 1))),
        jax.random.normal(k[2], (T, 1, V)),
        jax.random.uniform(k[3], (T, 1, 1), jnp.float32, 0.9, 1.0),
        jax.nn.sigmoid(jax.random.normal(k[4], (T, 1, 1))),
    )


def compute_flops():
    return 6 * T * K * V


def get_tiling_meta():
    return {}
