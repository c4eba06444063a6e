"""Honest: an FFT of 1024 points as 32 x 32, of 8 rows of pairs, beside a DFT by one matrix."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "fft_four_step"
PROBLEM_DESCRIPTION = "an FFT of 1024 points as 32 x 32, of 8 rows of pairs, beside a DFT by one matrix"
R, A = 8, 32
N = A * A


def angles(p, n):
    a = 2.0 * jnp.pi * (p % n).astype(jnp.float32) / n
    return (jnp.cos(a), -jnp.sin(a))


def mul(a, b):
    return jax.lax.dot_general(
        a, b, (((a.ndim - 1,), (0,)), ((), ())), precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32
    )


def kernel(xr, xi, c, s, tc, ts, yr, yi):
    for r in range(R):
        ar, ai = (xr[r], xi[r])
        br, bi = (mul(c[...], ar) - mul(s[...], ai), mul(c[...], ai) + mul(s[...], ar))
        br, bi = (br * tc[...] - bi * ts[...], br * ts[...] + bi * tc[...])
        yr[r], yi[r] = (mul(br, c[...]) - mul(bi, s[...]), mul(bi, c[...]) + mul(br, s[...]))


def kernel_fn(xr, xi):
    at = jnp.arange(A)[:, None] * jnp.arange(A)[None]
    yr, yi = pl.pallas_call(kernel, out_shape=(jax.ShapeDtypeStruct((R, A, A), jnp.float32),) * 2)(
        xr.reshape(R, A, A), xi.reshape(R, A, A), *angles(at, A), *angles(at, N)
    )
    return tuple(jnp.swapaxes(y, 1, 2).reshape(R, N) for y in (yr, yi))


def reference_fn(xr, xi):
    c, s = angles(jnp.arange(N)[:, None] * jnp.arange(N)[None], N)
    return (mul(xr, c) - mul(xi, s), mul(xr, s) + mul(xi, c))


def generate_inputs(key):
    a, b = jax.random.split(key)
    return (jax.random.normal(a, (R, N)), jax.random.normal(b, (R, N)))


def compute_flops():
    return R * 5 * N * 10


def get_tiling_meta():
    return {}
