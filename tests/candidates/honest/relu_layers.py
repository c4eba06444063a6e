"""Honest: layers with a rectifier, each a kernel inside of lax.scan."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "relu_layers"
PROBLEM_DESCRIPTION = "x = relu(x w) three times, bfloat16[256, 256]"

N, LAYERS, BLOCK = 256, 3, 128


def _kernel(x, w, o):
    y = jnp.dot(x[...], w[...], preferred_element_type=jnp.float32)
    o[...] = jnp.maximum(y, 0).astype(o.dtype)


def kernel_fn(x, w):
    def layer(x, w):
        made = pl.pallas_call(
            _kernel,
            out_shape=jax.ShapeDtypeStruct((N, N), jnp.bfloat16),
            grid=(N // BLOCK,),
            in_specs=[pl.BlockSpec((BLOCK, N), lambda i: (i, 0)), pl.BlockSpec((N, N), lambda i: (0, 0))],
            out_specs=pl.BlockSpec((BLOCK, N), lambda i: (i, 0)),
        )(x, w)
        return made, None

    return jax.lax.scan(layer, x, w)[0]


def reference_fn(x, w):
    for n in range(LAYERS):
        x = jnp.maximum(jnp.dot(x, w[n], preferred_element_type=jnp.float32), 0).astype(jnp.bfloat16)
    return x


def generate_inputs(key):
    one, two = jax.random.split(key)
    x = jax.random.normal(one, (N, N), jnp.bfloat16)
    return x, (jax.random.normal(two, (LAYERS, N, N)) * (2 / N) ** 0.5).astype(jnp.bfloat16)


def compute_flops():
    return 2 * N**3 * LAYERS
