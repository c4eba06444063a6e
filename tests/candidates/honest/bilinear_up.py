"""Honest: bilinear upsampling by 2 of float32[8, 32, 128] (rows), as a product with the weights."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "bilinear_up"
PROBLEM_DESCRIPTION = "bilinear upsampling by 2 of float32[8, 32, 128] (rows), as a product with the weights"
N, S, C = 8, 32, 128


def weights():
    at = jnp.clip((jnp.arange(2 * S) + 0.5) / 2 - 0.5, 0.0, S - 1.0)
    return jnp.maximum(0.0, 1.0 - jnp.abs(at[:, None] - jnp.arange(S)[None]))


def kernel(x, w, o):
    o[0] = jnp.dot(w[...], x[0], precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32)


def kernel_fn(x):
    return pl.pallas_call(
        kernel,
        grid=(N,),
        in_specs=[pl.BlockSpec((1, S, C), lambda n: (n, 0, 0)), pl.BlockSpec((2 * S, S), lambda n: (0, 0))],
        out_specs=pl.BlockSpec((1, 2 * S, C), lambda n: (n, 0, 0)),
        out_shape=jax.ShapeDtypeStruct((N, 2 * S, C), jnp.float32),
    )(x, weights())


def reference_fn(x):
    return jax.image.resize(x, (N, 2 * S, C), "bilinear")


def generate_inputs(key):
    return (jax.random.normal(key, (N, S, C)),)


def compute_flops():
    return 2 * N * 2 * S * C


def get_tiling_meta():
    return {}
