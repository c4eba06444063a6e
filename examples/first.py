"""Softmax over rows: x float32[256, 1024] -> float32[256, 1024]. Where a workspace of `ratchet init` begins.

A step holds a block of whole rows in VMEM. Mutation to try first: more rows in a step.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "row_softmax"
PROBLEM_DESCRIPTION = "softmax over the rows of float32[256, 1024]"

ROWS, WIDTH = 256, 1024

BLOCK = 8


def _normalise(x_ref, o_ref):
    x = x_ref[...]
    weights = jnp.exp(x - jnp.max(x, axis=1, keepdims=True))
    o_ref[...] = weights / jnp.sum(weights, axis=1, keepdims=True)


def kernel_fn(x):
    """x float32[ROWS, WIDTH] -> float32[ROWS, WIDTH]."""
    rows = pl.BlockSpec((BLOCK, WIDTH), lambda i: (i, 0))
    return pl.pallas_call(
        _normalise,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(ROWS // BLOCK,),
        in_specs=[rows],
        out_specs=rows,
    )(x)


def reference_fn(x):
    """The same in plain jax.numpy."""
    return jax.nn.softmax(x, axis=1)


def generate_inputs(key):
    """Normal logits with a deviation of 3."""
    return (3 * jax.random.normal(key, (ROWS, WIDTH), jnp.float32),)


def compute_flops():
    """Useful FLOPs per element: difference, exponential, sum, quotient."""
    return 4 * ROWS * WIDTH


def get_tiling_meta():
    """What the author believes about buffers and traffic."""
    return {"grid": [ROWS // BLOCK]}
