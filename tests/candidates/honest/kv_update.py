"""Honest: new rows are copied into a cache that is donated, at a place that an input names."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "kv_update"
PROBLEM_DESCRIPTION = "writes 8 new rows into a cache of bfloat16[1024, 128] in place"

S, D, NEW = 1024, 128, 8


def _kernel(pos, new, cache, o, sem):
    copy = pltpu.make_async_copy(new, o.at[pl.ds(pl.multiple_of(pos[0] * NEW, NEW), NEW)], sem)
    copy.start()
    copy.wait()


def kernel_fn(pos, new, cache):
    return pl.pallas_call(
        _kernel,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(1,),
            in_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=pl.BlockSpec(memory_space=pl.ANY),
            scratch_shapes=[pltpu.SemaphoreType.DMA],
        ),
        out_shape=jax.ShapeDtypeStruct((S, D), jnp.bfloat16),
        input_output_aliases={2: 0},
    )(pos, new, cache)


def reference_fn(pos, new, cache):
    return jax.lax.dynamic_update_slice(cache, new, (pos[0] * NEW, 0))


def generate_inputs(key):
    k = jax.random.split(key, 3)
    return (
        jax.random.randint(k[0], (1,), 0, S // NEW),
        jax.random.normal(k[1], (NEW, D), jnp.bfloat16),
        jax.random.normal(k[2], (S, D), jnp.bfloat16),
    )


def compute_flops():
    return NEW * D
