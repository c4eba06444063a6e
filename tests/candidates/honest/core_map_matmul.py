"""Honest: a product by a pipeline inside of a core_map, into a buffer that XLA allocates beside the kernel."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "core_map_matmul"
PROBLEM_DESCRIPTION = "silu(x w) of bfloat16[256, 512] x bfloat16[512, 256]"

M, K, N, BLOCK = 256, 512, 256, 128


def _step(x, w, o, total):
    @pl.when(pl.program_id(2) == 0)
    def _():
        total[...] = jnp.zeros_like(total)

    total[...] += jnp.dot(x[...], w[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        o[...] = jax.nn.silu(total[...]).astype(o.dtype)


def kernel_fn(x, w):
    cores = pltpu.create_tensorcore_mesh("core", num_cores=1)

    @pl.run_state
    def run(refs):
        @pl.core_map(cores)
        def _():
            def product(total):
                pltpu.emit_pipeline(
                    _step,
                    grid=(M // BLOCK, N // BLOCK, K // BLOCK),
                    in_specs=[
                        pl.BlockSpec((BLOCK, BLOCK), lambda i, j, k: (i, k)),
                        pl.BlockSpec((BLOCK, BLOCK), lambda i, j, k: (k, j)),
                    ],
                    out_specs=[pl.BlockSpec((BLOCK, BLOCK), lambda i, j, k: (i, j))],
                )(*refs, scratches=(total,))

            pl.run_scoped(product, pltpu.VMEM((BLOCK, BLOCK), jnp.float32))

    return run((x, w, pl.empty((M, N), jnp.bfloat16)))[2]


def reference_fn(x, w):
    return jax.nn.silu(jnp.dot(x, w, preferred_element_type=jnp.float32)).astype(jnp.bfloat16)


def generate_inputs(key):
    one, two = jax.random.split(key)
    return jax.random.normal(one, (M, K), jnp.bfloat16), jax.random.normal(two, (K, N), jnp.bfloat16) / K**0.5


def compute_flops():
    return 2 * M * K * N
