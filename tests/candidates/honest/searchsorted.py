"""Honest: which of 64 sorted float32 edges each of [64, 128] values is behind."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "searchsorted"
PROBLEM_DESCRIPTION = "which of 64 sorted float32 edges each of [64, 128] values is behind"
R, C, K = 64, 128, 64


def kernel(x, e, o):
    acc = jnp.zeros((R, C), jnp.int32)
    for k in range(K):
        acc += (e[k] <= x[...]).astype(jnp.int32)
    o[...] = acc


def kernel_fn(x, e):
    vmem = pl.BlockSpec(memory_space=pltpu.VMEM)
    return pl.pallas_call(
        kernel,
        in_specs=[vmem, pl.BlockSpec(memory_space=pltpu.SMEM)],
        out_specs=vmem,
        out_shape=jax.ShapeDtypeStruct((R, C), jnp.int32),
    )(x, e)


def reference_fn(x, e):
    return jnp.searchsorted(e, x, side="right").astype(jnp.int32)


def generate_inputs(key):
    a, b = jax.random.split(key)
    return (jax.random.normal(a, (R, C)), jnp.sort(jax.random.normal(b, (K,))))


def compute_flops():
    return R * C * K


def get_tiling_meta():
    return {}
