"""Honest: SELU of float32[300, 200], tails on both axes."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "elu_selu"
PROBLEM_DESCRIPTION = "SELU of float32[300, 200], tails on both axes"
R, C = 300, 200


def selu(x):
    return 1.0507009873554805 * jnp.where(x > 0, x, 1.6732632423543772 * (jnp.exp(jnp.minimum(x, 0.0)) - 1.0))


def kernel(x, o):
    o[...] = selu(x[...])


def kernel_fn(x):
    b = pl.BlockSpec((64, 128), lambda i, j: (i, j))
    return pl.pallas_call(
        kernel,
        grid=(pl.cdiv(R, 64), pl.cdiv(C, 128)),
        in_specs=[b],
        out_specs=b,
        out_shape=jax.ShapeDtypeStruct((R, C), jnp.float32),
    )(x)


def reference_fn(x):
    return jax.nn.selu(x)


def generate_inputs(key):
    return (2.0 * jax.random.normal(key, (R, C)),)


def compute_flops():
    return 4 * R * C


def get_tiling_meta():
    return {}
