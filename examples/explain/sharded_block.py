r"""A transformer block with experts over the chips of a slice, a Pallas kernel inside: to explain, not to judge.

Rows of x lie on the chips. Attention gathers them and has its heads by chip; the experts, one by chip, get their tokens
by an all-to-all.

./ratchet.sh explain examples/explain/sharded_block.py:block --mesh chip=8 \
    --input 'bf16[4096@chip,1024]' --input 'bf16[1024,8@chip,384]' --input 'bf16[8@chip,128,1024]' \
    --input 'bf16[1024,8]' --input 'bf16[8@chip,1024,4096]' --input 'bf16[8@chip,4096,1024]'
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import flash_attention as flash
from jax.sharding import PartitionSpec as P

HEAD, BLOCK = 128, 512
ROWS, HEADS, EXPERTS = P("chip"), P(None, "chip"), P("chip")


def norm(x):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-6)).astype(x.dtype)


def attention(x, qkv, out):
    """All rows by this chip's heads, summed over the chips: each keeps its rows."""
    every = jax.lax.all_gather(x, "chip", tiled=True)
    q, k, v = (jnp.einsum("td,dhe->hte", every, part)[None] for part in jnp.split(qkv, 3, axis=-1))
    sizes = flash.BlockSizes(block_q=BLOCK, block_k_major=BLOCK, block_k=BLOCK, block_b=1)
    attended = flash.flash_attention(q, k, v, causal=True, sm_scale=HEAD**-0.5, block_sizes=sizes)[0]
    return jax.lax.psum_scatter(jnp.einsum("hte,hed->td", attended, out), "chip", tiled=True)


def experts(x, router, up, down):
    """Each token to its best expert, up to twice as many to one as on average."""
    chips = jax.lax.axis_size("chip")
    capacity = 2 * x.shape[0] // chips
    scores = jax.nn.softmax((x @ router).astype(jnp.float32))
    best = jax.nn.one_hot(jnp.argmax(scores, -1), chips, dtype=jnp.int32)
    place = (jnp.cumsum(best, 0) - 1) * best
    sent = best.astype(x.dtype)[..., None] * jax.nn.one_hot(place, capacity, dtype=x.dtype)
    arrived = jax.lax.all_to_all(jnp.einsum("tec,td->ecd", sent, x), "chip", 0, 0)
    made = jax.nn.gelu(arrived.reshape(-1, x.shape[1]) @ up[0]) @ down[0]
    back = jax.lax.all_to_all(made.reshape(arrived.shape), "chip", 0, 0)
    return jnp.einsum("tec,ecd->td", sent, back) * scores.max(-1, keepdims=True).astype(x.dtype)


@jax.jit
def block(x, qkv, out, router, up, down):
    def local(x, qkv, out, router, up, down):
        x += attention(norm(x), qkv, out)
        return x + experts(norm(x), router, up, down)

    specs = (ROWS, HEADS, EXPERTS, P(), EXPERTS, EXPERTS)
    return jax.shard_map(local, in_specs=specs, out_specs=ROWS, check_vma=False)(x, qkv, out, router, up, down)
