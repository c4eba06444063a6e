"""An int8 product with scalar scales: x, w int8[512, 512], scales float32[4] -> bfloat16[512, 512].

The result is clip((x w) a b + c, -limit, limit), with a, b, c, limit the scales. The kernel computes with them on the
scalar unit, and leaves out the clipping where the limit allows anything.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "quantized_matmul"
PROBLEM_DESCRIPTION = "int8 product, 512 x 512 x 512, with scalar scales, bfloat16 out"

SIZE = 512
BLOCK = 256


def _product(scales, x_ref, w_ref, o_ref):
    scale, shift, limit = scales[0] * scales[1], scales[2], scales[3]
    product = jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.int32).astype(jnp.float32) * scale + shift

    @pl.when(limit < 1e30)
    def _clipped():
        o_ref[...] = jnp.clip(product, -limit, limit).astype(o_ref.dtype)

    @pl.when(limit >= 1e30)
    def _whole():
        o_ref[...] = product.astype(o_ref.dtype)


def kernel_fn(x, w, scales):
    """x, w int8[SIZE, SIZE], scales float32[4] -> bfloat16[SIZE, SIZE]."""
    return pl.pallas_call(
        _product,
        out_shape=jax.ShapeDtypeStruct((SIZE, SIZE), jnp.bfloat16),
        grid=(SIZE // BLOCK, SIZE // BLOCK),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec((BLOCK, SIZE), lambda i, j: (i, 0)),
            pl.BlockSpec((SIZE, BLOCK), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((BLOCK, BLOCK), lambda i, j: (i, j)),
    )(scales, x, w)


def reference_fn(x, w, scales):
    """The same in plain jax.numpy."""
    a, b, c, limit = scales
    product = jnp.dot(x, w, preferred_element_type=jnp.int32).astype(jnp.float32)
    return jnp.clip(product * (a * b) + c, -limit, limit).astype(jnp.bfloat16)


def generate_inputs(key):
    """Uniform integers; scales that bring the result to about one."""
    x, w = (jax.random.randint(k, (SIZE, SIZE), -127, 128, jnp.int8) for k in jax.random.split(key))
    return x, w, jnp.array([1 / 127, 0.004, 0.5, 8.0], jnp.float32)


def compute_flops():
    """Useful FLOPs: one product."""
    return 2 * SIZE**3


def get_tiling_meta():
    """What the author believes the kernel uses."""
    block = BLOCK * SIZE
    return {
        "grid": [SIZE // BLOCK, SIZE // BLOCK],
        "buffers": [
            {"name": "x", "size_bytes": block, "double_buffered": True},
            {"name": "w", "size_bytes": block, "double_buffered": True},
            {"name": "o", "size_bytes": BLOCK * BLOCK * 2, "double_buffered": True},
        ],
        "inputs": [
            {"name": "x", "size_bytes": SIZE * SIZE, "re_reads": 1},
            {"name": "w", "size_bytes": SIZE * SIZE, "re_reads": SIZE // BLOCK},
            {"name": "scales", "size_bytes": 16, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": SIZE * SIZE * 2, "re_reads": 1}],
        "vreg_estimate_bytes": BLOCK * BLOCK * 4,
    }
