"""A transformer block with a Pallas kernel of JAX's inside: something to explain, not to judge.

./ratchet.sh explain examples/explain/transformer_block.py:block --input examples/explain/transformer_block.py:inputs
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import flash_attention as flash

TOKENS, HEADS, HEAD, HIDDEN = 1024, 8, 128, 4096
WIDTH = HEADS * HEAD
BLOCK = 512


def inputs(key):
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}
    keys = dict(zip((*shapes, "x"), jax.random.split(key, len(shapes) + 1), strict=True))
    weights = {
        name: jax.random.normal(keys[name], shape, jnp.bfloat16) * shape[0] ** -0.5 for name, shape in shapes.items()
    }
    return weights, jax.random.normal(keys["x"], (TOKENS, WIDTH), jnp.bfloat16)


def norm(x):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-6)).astype(x.dtype)


def attend(x, qkv):
    sizes = flash.BlockSizes(block_q=BLOCK, block_k_major=BLOCK, block_k=BLOCK, block_b=1)
    heads = (x @ qkv).reshape(TOKENS, 3, HEADS, HEAD).transpose(1, 2, 0, 3)[:, None]
    attended = flash.flash_attention(*heads, causal=True, sm_scale=HEAD**-0.5, block_sizes=sizes)
    return attended[0].transpose(1, 0, 2).reshape(TOKENS, WIDTH)


@jax.jit
def block(weights, x):
    x += attend(norm(x), weights["qkv"]) @ weights["out"]
    return x + jax.nn.gelu(norm(x) @ weights["up"]) @ weights["down"]
