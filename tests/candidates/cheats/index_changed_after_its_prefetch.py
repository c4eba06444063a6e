"""Not on the list: a step changes the index of the next block, which the pipeline has fetched by then."""
# rejected as: COPIES_DIFFER
# said: blocks of operand 1
# kind: copies that differ
# caught by: same copies
# base: none
# problem: its own

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "changed_index"
PROBLEM_DESCRIPTION = "block ids[0] of float32[48, 128], then five times block 3, of 8 rows each"
BUFFERS = 2


def _kernel(ids, x, o):
    for i in range(1, 6):
        ids[i] = 3
    o[...] = x[...]


def kernel_fn(ids, x):
    blocks = pl.BlockSpec((8, 128), lambda i, ids: (ids[i], 0), pipeline_mode=pl.Buffered(BUFFERS))
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(6,), in_specs=[blocks], out_specs=pl.BlockSpec((8, 128), lambda i, ids: (i, 0))
    )
    return pl.pallas_call(_kernel, grid_spec=spec, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(ids, x)


def reference_fn(ids, x):
    blocks = x.reshape(6, 8, 128)
    return jnp.take(blocks, ids.at[1:].set(3), axis=0).reshape(48, 128)


def generate_inputs(key):
    a, b = jax.random.split(key)
    return jax.random.randint(a, (6,), 0, 6), jax.random.normal(b, (48, 128))


def compute_flops():
    return 48 * 128


def get_tiling_meta():
    return {}
