"""Honest: the experts of a mixture: two gated products and one down, one expert a grid step."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "moe_swiglu"
PROBLEM_DESCRIPTION = "SwiGLU of 4 experts, bfloat16[4, 64, 128]"

E, T, D, F = 4, 64, 128, 256


def _kernel(x, gate, up, down, o):
    g = jnp.dot(x[0], gate[0], preferred_element_type=jnp.float32)
    u = jnp.dot(x[0], up[0], preferred_element_type=jnp.float32)
    h = (g * jax.nn.sigmoid(g) * u).astype(x.dtype)
    o[0] = jnp.dot(h, down[0], preferred_element_type=jnp.float32).astype(o.dtype)


def kernel_fn(x, gate, up, down):
    def one(rows, columns):
        return pl.BlockSpec((1, rows, columns), lambda e: (e, 0, 0))

    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((E, T, D), x.dtype),
        grid=(E,),
        in_specs=[one(T, D), one(D, F), one(D, F), one(F, D)],
        out_specs=one(T, D),
    )(x, gate, up, down)


def reference_fn(x, gate, up, down):
    g = jnp.einsum("etd,edf->etf", x, gate, preferred_element_type=jnp.float32)
    u = jnp.einsum("etd,edf->etf", x, up, preferred_element_type=jnp.float32)
    h = (jax.nn.silu(g) * u).astype(x.dtype)
    return jnp.einsum("etf,efd->etd", h, down, preferred_element_type=jnp.float32).astype(x.dtype)


def generate_inputs(key):
    a, b, c, d = jax.random.split(key, 4)
    return (
        jax.random.normal(a, (E, T, D), jnp.bfloat16),
        jax.random.normal(b, (E, D, F), jnp.bfloat16) * 0.09,
        jax.random.normal(c, (E, D, F), jnp.bfloat16) * 0.09,
        jax.random.normal(d, (E, F, D), jnp.bfloat16) * 0.06,
    )


def compute_flops():
    return 6 * E * T * D * F
