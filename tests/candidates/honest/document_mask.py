"""Honest: causal attention inside documents, 4 heads."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "document_mask"
PROBLEM_DESCRIPTION = "causal attention inside documents, 4 heads of bfloat16[256, 128]"

H, N, D, B = 4, 256, 128, 128


def _scores(s):
    return s * D**-0.5


def _kernel(q, k, v, rows, columns, o):
    i = pl.program_id(1)
    s = _scores(jax.lax.dot_general(q[0], k[0], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32))
    r = i * B + jax.lax.broadcasted_iota(jnp.int32, (B, N), 0)
    c = jax.lax.broadcasted_iota(jnp.int32, (B, N), 1)
    s = jnp.where((c <= r) & (rows[...] == columns[...]), s, -1e30)
    e = jnp.exp(s - jnp.max(s, axis=1, keepdims=True))
    total = jnp.dot(e.astype(jnp.bfloat16), v[0], preferred_element_type=jnp.float32)
    o[0] = (total / jnp.sum(e, axis=1, keepdims=True)).astype(o.dtype)


def kernel_fn(q, k, v, ids):
    whole = pl.BlockSpec((1, N, D), lambda h, i: (h, 0, 0))
    return pl.pallas_call(
        _kernel,
        out_shape=jax.ShapeDtypeStruct((H, N, D), jnp.bfloat16),
        grid=(H, N // B),
        in_specs=[
            pl.BlockSpec((1, B, D), lambda h, i: (h, i, 0)),
            whole,
            whole,
            pl.BlockSpec((B, 1), lambda h, i: (i, 0)),
            pl.BlockSpec((1, N), lambda h, i: (0, 0)),
        ],
        out_specs=pl.BlockSpec((1, B, D), lambda h, i: (h, i, 0)),
    )(q, k, v, ids.reshape(N, 1), ids.reshape(1, N))


def reference_fn(q, k, v, ids):
    s = _scores(jnp.einsum("hqd,hkd->hqk", q, k, preferred_element_type=jnp.float32))
    r, c = jnp.arange(N)[:, None], jnp.arange(N)[None]
    rows, columns = ids[:, None], ids[None]
    p = jax.nn.softmax(jnp.where((c <= r) & (rows[...] == columns[...]), s, -jnp.inf), axis=-1)
    return jnp.einsum("hqk,hkd->hqd", p.astype(v.dtype), v, preferred_element_type=jnp.float32).astype(jnp.bfloat16)


def generate_inputs(key):
    parts = jax.random.split(key, 3)
    arrays = tuple(jax.random.normal(part, (H, N, D), jnp.bfloat16) for part in parts)
    return (*arrays, jnp.repeat(jnp.arange(4, dtype=jnp.int32), N // 4))


def compute_flops():
    return 4 * H * N * N * D // 8
