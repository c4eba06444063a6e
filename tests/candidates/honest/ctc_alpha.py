"""Honest: CTC's forward variables in log space over 64 frames of 8 sequences, 128 extended labels."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "ctc_alpha"
PROBLEM_DESCRIPTION = "CTC's forward variables in log space over 64 frames of 8 sequences, 128 extended labels"
T, N, L = 64, 8, 128
NEG = -1e30


def lse3(a, b, c):
    m = jnp.maximum(jnp.maximum(a, b), c)
    return m + jnp.log(jnp.exp(a - m) + jnp.exp(b - m) + jnp.exp(c - m))


def kernel(e, skip, o, al):

    @pl.when(pl.program_id(0) == 0)
    def _():
        al[...] = jnp.where(jax.lax.broadcasted_iota(jnp.int32, (N, L), 1) == 0, 0.0, NEG)

    at = jax.lax.broadcasted_iota(jnp.int32, (N, L), 1)
    one = jnp.where(at >= 1, pltpu.roll(al[...], 1, 1), NEG)
    two = jnp.where((at >= 2) & (skip[...] > 0), pltpu.roll(al[...], 2, 1), NEG)
    al[...] = lse3(al[...], one, two) + e[0]
    o[...] = al[...]


def kernel_fn(e, skip):
    whole = pl.BlockSpec((N, L), lambda t: (0, 0))
    return pl.pallas_call(
        kernel,
        grid=(T,),
        in_specs=[pl.BlockSpec((1, N, L), lambda t: (t, 0, 0)), whole],
        out_specs=whole,
        out_shape=jax.ShapeDtypeStruct((N, L), jnp.float32),
        scratch_shapes=[pltpu.VMEM((N, L), jnp.float32)],
    )(e, skip)


def reference_fn(e, skip):

    def body(al, e):

        def pad(k):
            return jnp.concatenate([jnp.full((N, k), NEG), al[:, : L - k]], axis=1)

        return (lse3(al, pad(1), jnp.where(skip > 0, pad(2), NEG)) + e, None)

    first = jnp.where(jnp.arange(L)[None] == 0, 0.0, NEG) + jnp.zeros((N, 1))
    return jax.lax.scan(body, first, e)[0]


def generate_inputs(key):
    a, b = jax.random.split(key)
    return (
        jax.nn.log_softmax(jax.random.normal(a, (T, N, L)), axis=2),
        jax.random.bernoulli(b, 0.7, (N, L)).astype(jnp.int32),
    )


def compute_flops():
    return 8 * T * N * L


def get_tiling_meta():
    return {}
