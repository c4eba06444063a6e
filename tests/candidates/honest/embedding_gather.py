"""Honest: rows of a table by a list of indices in scalar memory."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "embedding_gather"
PROBLEM_DESCRIPTION = "256 rows of bfloat16[1024, 1, 256] by index"

COUNT, VOCABULARY, D = 256, 1024, 256


def _kernel(ids, table, o):
    o[...] = table[...]


def kernel_fn(ids, table):
    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(COUNT,),
        in_specs=[pl.BlockSpec((1, 1, D), lambda i, ids: (ids[i], 0, 0))],
        out_specs=pl.BlockSpec((1, 1, D), lambda i, ids: (i, 0, 0)),
    )
    shape = jax.ShapeDtypeStruct((COUNT, 1, D), jnp.bfloat16)
    return pl.pallas_call(_kernel, out_shape=shape, grid_spec=grid)(ids, table)


def reference_fn(ids, table):
    return jnp.take(table, ids, axis=0)


def generate_inputs(key):
    a, b = jax.random.split(key)
    ids = jax.random.randint(a, (COUNT,), 0, VOCABULARY, jnp.int32)
    return ids, jax.random.normal(b, (VOCABULARY, 1, D), jnp.bfloat16)


def compute_flops():
    return 1
