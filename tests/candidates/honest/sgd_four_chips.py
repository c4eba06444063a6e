"""Honest: a step of gradient descent in place, on the rows that each of four chips holds."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "sgd_four_chips"
PROBLEM_DESCRIPTION = "p - 0.1 g of float32[1024, 512] whose rows are sharded over 4 chips"

CHIPS, ROWS, WIDTH, BLOCK = 4, 1024, 512, 128


def _kernel(p, g, o):
    o[...] = p[...] - 0.1 * g[...]


def _shard(p, g):
    spec = pl.BlockSpec((BLOCK, WIDTH), lambda i: (i, 0))
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct(p.shape, p.dtype),
        grid=(ROWS // CHIPS // BLOCK,),
        in_specs=[spec, spec],
        out_specs=spec,
        input_output_aliases={0: 0},
    )(p, g)


def kernel_fn(p, g):
    rows = P("chip")
    return jax.shard_map(_shard, in_specs=(rows, rows), out_specs=rows, check_vma=False)(p, g)


def reference_fn(p, g):
    return p - 0.1 * g


def generate_inputs(key):
    return tuple(jax.random.normal(part, (ROWS, WIDTH), jnp.float32) for part in jax.random.split(key))


def compute_flops():
    return 2 * ROWS * WIDTH


def get_tiling_meta():
    return {"mesh": {"chip": CHIPS}, "input_shardings": [["chip"], ["chip"]]}
