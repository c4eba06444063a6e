"""Honest: one step of Adam in float32, in place."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "adam"
PROBLEM_DESCRIPTION = "Adam step on float32[256, 256]"

N, D, B = 256, 256, 64


def _row(width=D):
    return pl.BlockSpec((B, width), lambda i: (i, 0))


def _all(*shape):
    return pl.BlockSpec(shape, lambda i: (0,) * len(shape))


def _kernel(p, m, v, g, p2, m2, v2):
    m_new = 0.9 * m[...] + 0.1 * g[...]
    v_new = 0.999 * v[...] + 0.001 * g[...] * g[...]
    p2[...] = p[...] - 1e-3 * (m_new / (1 - 0.9)) / (jnp.sqrt(v_new / (1 - 0.999)) + 1e-8)
    m2[...], v2[...] = m_new, v_new


def kernel_fn(p, m, v, g):
    return pl.pallas_call(
        _kernel,
        out_shape=[jax.ShapeDtypeStruct((N, D), jnp.float32)] * 3,
        grid=(N // B,),
        in_specs=[_row()] * 4,
        out_specs=[_row()] * 3,
        input_output_aliases={0: 0, 1: 1, 2: 2},
    )(p, m, v, g)


def reference_fn(p, m, v, g):
    m = 0.9 * m + (1 - 0.9) * g
    v = 0.999 * v + (1 - 0.999) * jnp.square(g)
    step = (m / (1 - 0.9)) / (jnp.sqrt(v / (1 - 0.999)) + 1e-8)
    return p - 1e-3 * step, m, v


def generate_inputs(key):
    p, m, v, g = (jax.random.normal(part, (N, D), jnp.float32) for part in jax.random.split(key, 4))
    return p, 0.1 * m, 0.01 * v * v, g


def compute_flops():
    return 12 * N * D
