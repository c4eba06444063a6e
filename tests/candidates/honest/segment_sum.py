"""Honest: sums of rows by segment, as a product with a one-hot matrix at the highest precision."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "segment_sum"
PROBLEM_DESCRIPTION = "segment sum of float32[256, 128] into 16"

N, D, SEGMENTS, B = 256, 128, 16, 64


def _kernel(ids, x, o):
    @pl.when(pl.program_id(0) == 0)
    def _():
        o[...] = jnp.zeros_like(o)

    hot = (jax.lax.broadcasted_iota(jnp.int32, (SEGMENTS, B), 0) == ids[0]).astype(jnp.float32)
    o[...] += jnp.dot(hot, x[...], precision="highest", preferred_element_type=jnp.float32)


def kernel_fn(ids, x):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((SEGMENTS, D), jnp.float32),
        grid=(N // B,),
        in_specs=[pl.BlockSpec((1, 1, B), lambda i: (i, 0, 0)), pl.BlockSpec((B, D), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((SEGMENTS, D), lambda i: (0, 0)),
    )(ids.reshape(N // B, 1, B), x)


def reference_fn(ids, x):
    return jax.ops.segment_sum(x, ids, SEGMENTS)


def generate_inputs(key):
    a, b = jax.random.split(key)
    return jax.random.randint(a, (N,), 0, SEGMENTS, jnp.int32), jax.random.normal(b, (N, D), jnp.float32)


def compute_flops():
    return N * D
