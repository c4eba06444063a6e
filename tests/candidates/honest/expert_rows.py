"""Honest: rows sorted by expert, times the weights of their expert; each expert masks the rows that are its own."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "expert_rows"
PROBLEM_DESCRIPTION = "bfloat16[256, 128] times 8 of bfloat16[128, 128] by the sizes of the groups"

N, D, E, B = 256, 128, 8, 64


def _kernel(starts, x, w, o, acc):
    i, e = pl.program_id(0), pl.program_id(1)

    @pl.when(e == 0)
    def _():
        acc[...] = jnp.zeros_like(acc)

    row = i * B + jax.lax.broadcasted_iota(jnp.int32, (B, D), 0)
    own = (row >= starts[e]) & (row < starts[e + 1])
    acc[...] += jnp.where(own, jnp.dot(x[...], w[0], preferred_element_type=jnp.float32), 0.0)
    o[...] = acc[...].astype(o.dtype)


def kernel_fn(x, w, sizes):
    starts = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(sizes)]).astype(jnp.int32)
    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(N // B, E),
        in_specs=[
            pl.BlockSpec((B, D), lambda i, e, starts: (i, 0)),
            pl.BlockSpec((1, D, D), lambda i, e, starts: (e, 0, 0)),
        ],
        out_specs=pl.BlockSpec((B, D), lambda i, e, starts: (i, 0)),
        scratch_shapes=[pltpu.VMEM((B, D), jnp.float32)],
    )
    return pl.pallas_call(_kernel, out_shape=jax.ShapeDtypeStruct((N, D), jnp.bfloat16), grid_spec=grid)(starts, x, w)


def reference_fn(x, w, sizes):
    expert = jnp.repeat(jnp.arange(E), sizes, total_repeat_length=N)
    return jnp.einsum("nk,nkm->nm", x, w[expert], preferred_element_type=jnp.float32).astype(x.dtype)


def generate_inputs(key):
    a, b, c = jax.random.split(key, 3)
    sizes = jnp.bincount(jax.random.randint(c, (N,), 0, E), length=E).astype(jnp.int32)
    return jax.random.normal(a, (N, D), jnp.bfloat16), jax.random.normal(b, (E, D, D), jnp.bfloat16), sizes


def compute_flops():
    return 2 * N * D * D
