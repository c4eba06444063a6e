"""A kernel file whose grid, body and operands are constants: what a verdict costs as each of them grows.

x: float32[ROWS, 128], in STEPS blocks; each element goes through BODY products and sums, unrolled.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "growing"
PROBLEM_DESCRIPTION = "a polynomial of each element"

ROWS = 3200
STEPS = 20
BODY = 8
WIDTH = 128
BLOCK = ROWS // STEPS


def _polynomial(x):
    y = x
    for _ in range(BODY):
        y = y * 0.5 + x
    return y


def _block(x_ref, o_ref):
    o_ref[...] = _polynomial(x_ref[...])


def kernel_fn(x):
    spec = pl.BlockSpec((BLOCK, WIDTH), lambda i: (i, 0))
    return pl.pallas_call(_block, out_shape=x, grid=(STEPS,), in_specs=[spec], out_specs=spec)(x)


def reference_fn(x):
    return _polynomial(x)


def generate_inputs(key):
    return (jax.random.normal(key, (ROWS, WIDTH), jnp.float32),)


def compute_flops():
    return 2 * BODY * ROWS * WIDTH


def get_tiling_meta():
    return {}
