"""Honest: shifts and exclusive ors of int32."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "bit_mix"
PROBLEM_DESCRIPTION = "xorshift of int32[256, 256]"

N, D, B = 256, 256, 64


def _row(width=D):
    return pl.BlockSpec((B, width), lambda i: (i, 0))


def _all(*shape):
    return pl.BlockSpec(shape, lambda i: (0,) * len(shape))


def _kernel(x, o):
    v = x[...]
    v = v ^ (v << 13)
    v = v ^ ((v >> 17) & 0x7FFF)
    o[...] = v ^ (v << 5)


def kernel_fn(x):
    return pl.pallas_call(
        _kernel, out_shape=jax.ShapeDtypeStruct((N, D), jnp.int32), grid=(N // B,), in_specs=[_row()], out_specs=_row()
    )(x)


def reference_fn(x):
    x = x ^ (x << 13)
    x = x ^ jax.lax.shift_right_logical(x, 17)
    return x ^ (x << 5)


def generate_inputs(key):
    return (jax.random.randint(key, (N, D), -(2**31), 2**31 - 1, jnp.int32),)


def compute_flops():
    return N * D
