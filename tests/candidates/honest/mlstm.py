"""Honest: xLSTM's matrix memory with a running maximum of its gates, 64 steps, 64 keys by 128 values."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "mlstm"
PROBLEM_DESCRIPTION = "xLSTM's matrix memory with a running maximum of its gates, 64 steps, 64 keys by 128 values"
T, K, V = 64, 64, 128


def step(carry, q, k, v, i, f):
    c, n, m = carry
    top = jnp.maximum(f + m, i)
    a, b = (jnp.exp(f + m - top), jnp.exp(i - top))
    c, n = (a * c + b * k * v, a * n + b * k)
    y = jnp.sum(c * q, axis=0, keepdims=True)
    return ((c, n, top), y / jnp.maximum(jnp.abs(jnp.sum(n * q, axis=0, keepdims=True)), jnp.exp(-top)))


def kernel(q, k, v, i, f, o, c, n, m):

    @pl.when(pl.program_id(0) == 0)
    def _():
        c[...], n[...], m[...] = (jnp.zeros_like(c), jnp.zeros_like(n), jnp.zeros_like(m))

    for t in range(8):
        carry, y = step((c[...], n[...], m[...]), q[t], k[t], v[t], i[t], f[t])
        c[...], n[...], m[...] = carry
        o[t] = y


def kernel_fn(q, k, v, i, f):

    def at(*s):
        return pl.BlockSpec((8, *s), lambda t: (t, 0, 0))

    return pl.pallas_call(
        kernel,
        grid=(T // 8,),
        in_specs=[at(K, 1), at(K, 1), at(1, V), at(1, 1), at(1, 1)],
        out_specs=at(1, V),
        out_shape=jax.ShapeDtypeStruct((T, 1, V), jnp.float32),
        scratch_shapes=[
            pltpu.VMEM((K, V), jnp.float32),
            pltpu.VMEM((K, 1), jnp.float32),
            pltpu.VMEM((1, 1), jnp.float32),
        ],
    )(q, k, v, i, f)


def reference_fn(q, k, v, i, f):
    zero = (jnp.zeros((K, V)), jnp.zeros((K, 1)), jnp.zeros((1, 1)))
    return jax.lax.scan(lambda c, x: step(c, *x), zero, (q, k, v, i, f))[1]


def generate_inputs(key):
    k = jax.random.split(key, 5)
    return (
        jax.random.normal(k[0], (T, K, 1)),
        0.125 * jax.random.normal(k[1], (T, K, 1)),
        jax.random.normal(k[2], (T, 1, V)),
        jax.random.normal(k[3], (T, 1, 1)),
        -jax.nn.softplus(-jax.random.normal(k[4], (T, 1, 1)) - 2.0),
    )


def compute_flops():
    return 8 * T * K * V


def get_tiling_meta():
    return {}
