"""Honest: a sum whose first addend XLA may fuse into the kernel."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "input_fusion"
PROBLEM_DESCRIPTION = "2 x + y of float32[256, 256]"

N, D, B = 256, 256, 64


def _row(width=D):
    return pl.BlockSpec((B, width), lambda i: (i, 0))


def _all(*shape):
    return pl.BlockSpec(shape, lambda i: (0,) * len(shape))


def _kernel(x, y, o):
    o[...] = x[...] + y[...]


def kernel_fn(x, y):
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((N, D), jnp.float32),
        grid=(N // B,),
        in_specs=[_row(), _row()],
        out_specs=_row(),
        compiler_params=pltpu.CompilerParams(allow_input_fusion=[True, False]),
    )(x * 2, y)


def reference_fn(x, y):
    return x * 2 + y


def generate_inputs(key):
    return tuple(jax.random.normal(part, (N, D), jnp.float32) for part in jax.random.split(key, 2))


def compute_flops():
    return N * D
