"""Honest: one leapfrog step of a wave equation on float32[32, 32, 128] with a halo by manual copies."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "wave_3d"
PROBLEM_DESCRIPTION = "one leapfrog step of a wave equation on float32[32, 32, 128] with a halo by manual copies"
Z, Y, X, B = 32, 32, 128, 8


def kernel(u, p, o, buf, sem):
    i = pl.program_id(0)
    copy = pltpu.make_async_copy(u.at[pl.ds(i * B, B + 2)], buf, sem)
    copy.start()
    copy.wait()
    c = buf[1 : B + 1]
    lap = buf[:B] + buf[2:] - 6.0 * c
    for axis, n in ((1, Y), (2, X)):
        lap += pltpu.roll(c, 1, axis) + pltpu.roll(c, n - 1, axis)
    o[...] = 2.0 * c - p[...] + 0.1 * lap


def kernel_fn(u, p):
    b = pl.BlockSpec((B, Y, X), lambda i: (i, 0, 0))
    return pl.pallas_call(
        kernel,
        grid=(Z // B,),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY), b],
        out_specs=b,
        out_shape=jax.ShapeDtypeStruct((Z, Y, X), jnp.float32),
        scratch_shapes=[pltpu.VMEM((B + 2, Y, X), jnp.float32), pltpu.SemaphoreType.DMA],
    )(u, p)


def reference_fn(u, p):
    c = u[1:-1]
    lap = u[:-2] + u[2:] - 6.0 * c
    for axis in (1, 2):
        lap += jnp.roll(c, 1, axis) + jnp.roll(c, -1, axis)
    return 2.0 * c - p + 0.1 * lap


def generate_inputs(key):
    a, b = jax.random.split(key)
    return (jax.random.normal(a, (Z + 2, Y, X)), jax.random.normal(b, (Z, Y, X)))


def compute_flops():
    return 10 * Z * Y * X


def get_tiling_meta():
    return {}
