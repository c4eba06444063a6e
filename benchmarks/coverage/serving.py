"""Kernels of sgl-project/sglang-jax, AI-Hypercomputer/JetStream and pytorch/xla."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.coverage.calls import F32, Call, attend, case, causal, enter, integers, ints, normal, permuted

SGL = "python/sgl_jax/srt/kernels/"
JETSTREAM = "experimental/jax/inference/kernel/attention/tpu/"
XLA = "torch_xla/experimental/pallas_kernels/"


@case("sglang-jax/top k, in groups", path=SGL + "grouped_topk/v1/kernel.py")
def _(module: Any) -> Call:
    options = {"num_expert_group": 8, "topk_group": 4, "topk": 8}

    def reference(logits: Any, bias: Any) -> Any:
        scores = (logits + bias).reshape(256, 8, 32)
        groups = jax.lax.top_k(jax.lax.top_k(scores, 2)[0].sum(-1), 4)[1]
        chosen = jax.nn.one_hot(groups, 8).sum(1)[:, :, None] > 0
        ids = jax.lax.top_k(jnp.where(chosen, scores, -jnp.inf).reshape(256, 256), 8)[1]
        return jnp.take_along_axis(logits, ids, 1), ids

    arrays = normal("logits", 256, 256, dtype=F32), normal("bias", 256, dtype=F32)
    kernel = partial(module.grouped_topk_pallas, **options, block_tokens=128, interpret=False)
    return Call(function=kernel, arrays=arrays, reference=reference, tolerance=1e-6)


@case("sglang-jax/top k", path=SGL + "biased_topk/v1/kernel.py")
def _(module: Any) -> Call:
    kernel = partial(module.topk_pallas, topk=8, block_tokens=128, interpret=False)
    x = normal("logits", 256, 256, dtype=F32)
    return Call(function=kernel, arrays=(x,), reference=lambda x: jax.lax.top_k(x, 8), tolerance=1e-6)


@case("sglang-jax/simple gated linear attention, decode", path=SGL + "simple_gla/simple_gla_fused.py")
def _(module: Any) -> Call:
    kernel = partial(module._launch_decode_simple_gla.__wrapped__, scale=128**-0.5)
    many, heads = 4, 8
    q, k, v = (normal(name, many, heads, 128, dtype=F32, scale=0.1) for name in "qkv")
    arrays = (q, k, v, -jnp.abs(normal("gamma", heads, dtype=F32, scale=0.1)),
              normal("state", 6, heads, 128, 128, dtype=F32), ints(3, 1, 5, 2), ints(1, 1, 0, 1))  # fmt: skip

    def reference(q: Any, k: Any, v: Any, gamma: Any, state: Any, slots: Any, started: Any) -> Any:
        before = jnp.where(started[:, None, None, None] > 0, state[slots], 0.0)
        after = before * jnp.exp(gamma)[None, :, None, None] + k[..., :, None] * v[..., None, :]
        return jnp.einsum("nhk,nhkv->nhv", q, after) * 128**-0.5, state.at[slots].set(after)

    return Call(function=kernel, arrays=arrays, reference=reference)


@case("sglang-jax/cache update", path=SGL + "update_kv_cache/update_kv_cache.py")
def _(module: Any) -> Call:
    starts, lengths = [3, 40, 41, 63, 17, 8, 9, 50], [1] * 8
    slices = jnp.asarray([starts, np.arange(8), lengths], jnp.int32)

    def kernel(new: Any, slices: Any, cache: Any, count: Any) -> Any:
        return module.kv_cache_update_impl(new, slices, cache, count, 1, 8)

    def reference(new: Any, _slices: Any, cache: Any, _count: Any) -> Any:
        return cache.reshape(64, 1, 2, 2, 128).at[np.asarray(starts)].set(new).reshape(cache.shape)

    arrays = normal("new", 8, 1, 2, 2, 128), slices, normal("cache", 4, 16, 2, 2, 128), ints(8)
    return Call(function=kernel, arrays=arrays, reference=reference, tolerance=0.0)


def _ragged(module: Any, **options: Any) -> Call:
    tokens, page, heads = 64, 16, 2
    lengths, starts = (30, 60, 50, 0), (0, 1, 2, 52, 52)
    table = np.arange(16)
    q, k, v = normal("q", tokens, 4, 128, scale=0.3), normal("k", tokens, heads, 128), normal("v", tokens, heads, 128)
    cache = normal("cache", 16, page, 2 * heads, 128)
    arrays = (q, k, v, cache, ints(*lengths), jnp.asarray(table, jnp.int32), ints(*starts),
              ints(0, 32, 96, 160, 160), ints(2, 2, 3), None)  # fmt: skip

    def kernel(*given: Any) -> Any:
        blocks = {"num_kv_pages_per_block": 2, "num_queries_per_block": 16, "vmem_limit_bytes": 64 << 20}
        return module.ragged_paged_attention(*given, sm_scale=0.1, **blocks, **options)[0][:52]

    def reference(q: Any, k: Any, v: Any, cache: Any, *_: Any) -> Any:
        outputs, first_page = [], 0
        for number, length in enumerate(lengths[:3]):
            queries = slice(starts[number], starts[number + 1])
            many, pages = starts[number + 1] - starts[number], -(-length // page)
            kv = cache[table[first_page : first_page + pages]].reshape(-1, heads, 2, 128)
            first_page += pages
            keys, values = (
                kv[:, :, n].at[length - many : length].set(new[queries])[:length].swapaxes(0, 1)
                for n, new in enumerate((k, v))
            )
            seen = causal(many, length, options.get("sliding_window"))
            outputs.append(attend(q[queries], keys, values, seen, scale=0.1))
        return jnp.concatenate(outputs).astype(q.dtype)

    return Call(function=kernel, arrays=arrays, reference=reference)


enter(
    SGL + "ragged_paged_attention/ragged_paged_attention.py",
    {
        "sglang-jax/ragged paged attention": _ragged,
        "sglang-jax/ragged paged attention, window": partial(_ragged, sliding_window=20),
    },
)


@case("sglang-jax/greedy verification of a tree", path=SGL + "speculative/verify_tree_greedy_kernel.py")
def _(module: Any) -> Call:
    batch, drafts, steps = 2, 6, 4
    arrays = (
        jnp.zeros((batch * drafts + 1,), jnp.int32),
        jnp.full((batch, steps), -1, jnp.int32),
        jnp.zeros((batch,), jnp.int32),
        integers("candidates", 0, 3, batch, drafts),
        jnp.arange(batch * drafts, dtype=jnp.int32).reshape(batch, drafts),
        jnp.asarray([[1, 3, -1, 4, 5, -1], [1, 2, 3, 4, 5, -1]], jnp.int32),
        jnp.asarray([[-1, 2, -1, -1, -1, -1], [-1] * 6], jnp.int32),
        integers("predicted", 0, 3, batch * drafts),
    )
    kernel = partial(module.verify_tree_greedy_pallas_call, draft_token_num=drafts, num_spec_tokens=steps)
    return Call(function=kernel, arrays=arrays, tolerance=0.0)


@case("sglang-jax/tree of drafts", path=SGL + "speculative/build_eagle_tree_structure_kernel.py")
def _(module: Any) -> Call:
    kernel = partial(module.build_eagle_tree_structure_pallas_call, draft_token_num=4, topk=2, max_context_len=128)
    arrays = (
        jnp.asarray([[-1, 0, 1, 2, 3], [-1, 0, 1, 3, 2]], jnp.int32),
        jnp.asarray([[0, 1, 3], [0, 2, 4]], jnp.int32),
        ints(7, 5),
        ints(12),
    )
    return Call(function=kernel, arrays=arrays, tolerance=0.0)


@case("jetstream/chunked prefill", path=JETSTREAM + "chunked_prefill_attention.py")
def _(module: Any) -> Call:
    heads, length = 2, 64
    q = normal("q", 32, 4, 128, dtype=F32)
    keys, values = (normal(name, heads, 16, 16, 128, dtype=F32) for name in ("k", "v"))

    def kernel(q: Any, keys: Any, values: Any, table: Any) -> Any:
        return module.chunked_prefill_attention(q, keys, values, jnp.asarray([length], jnp.int32), table)

    def reference(q: Any, keys: Any, values: Any, table: Any) -> Any:
        k, v = (one[:, table].reshape(heads, -1, 128)[:, :length] for one in (keys, values))
        return attend(q, k, v, causal(len(q), length), scale=128**-0.5)

    return Call(function=kernel, arrays=(q, keys, values, permuted("table", 16)), reference=reference)


def _int8(module: Any, *, quantised: bool) -> Call:
    blocks = {"batch_block_size": 128, "out_block_size": 128, "in_block_size": 256}
    kernel = partial(module.quantized_matmul_int8, quantize_activation=quantised, **blocks)

    def reference(x: Any, w: Any, scales: Any) -> Any:
        return ((x.astype(F32) @ w.astype(F32).T) * scales).astype(x.dtype)

    w = integers("w", -127, 128, 256, 512, dtype=jnp.int8)
    arrays = normal("x", 128, 512, dtype=F32), w, jnp.abs(normal("scale", 256, dtype=F32))
    return Call(function=kernel, arrays=arrays, reference=reference, tolerance=0.03)


enter(
    XLA + "quantized_matmul_kernel.py",
    {
        "pytorch-xla/quantised matmul, int8 weights": partial(_int8, quantised=False),
        "pytorch-xla/quantised matmul, int8 activations": partial(_int8, quantised=True),
    },
)


@case("pytorch-xla/paged attention, many queries", path=XLA + "multi_queries_paged_attention_kernel.py")
def _(module: Any) -> Call:
    batch, queries, heads, page, pages = 2, 16, 2, 16, 8
    lengths = 100, 70
    q = normal("q", batch, queries, 4, 128, dtype=F32, scale=0.1)
    keys, values = (normal(name, heads, batch * pages, page, 128, dtype=F32) for name in ("k", "v"))

    blocks = {"num_kv_pages_per_compute_block": 8, "num_queries_per_compute_block": 16}
    kernel = partial(module.paged_attention, **blocks)

    def reference(q: Any, keys: Any, values: Any, _lengths: Any, table: Any, _effective: Any) -> Any:
        k, v = (one[:, table].reshape(heads, batch, -1, 128) for one in (keys, values))
        return jnp.stack([
            attend(q[n], k[:, n, :length], v[:, n, :length], causal(queries, length))
            for n, length in enumerate(lengths)
        ])  # fmt: skip

    arrays = (q, keys, values, ints(*lengths), permuted("table", batch, pages), ints(queries, queries))
    return Call(function=kernel, arrays=arrays, reference=reference)


@case("pytorch-xla/ragged paged attention v1", path=XLA + "ragged_paged_attention_kernel.py")
def _(module: Any) -> Call:
    tokens, heads, page = 64, 2, 16
    q = normal("q", tokens, 4, 128, dtype=F32, scale=0.1)
    keys, values = (normal(name, heads, 16, page, 128, dtype=F32) for name in ("k", "v"))
    lengths, starts = (100, 70), (0, 20, 50)
    table = jnp.pad(permuted("table", 2, 8), ((0, 0), (0, 120)))
    known_table = np.asarray(table)

    def wide(values: Any, size: int) -> Any:
        return jnp.pad(values, [(0, size - values.shape[0])] + [(0, 0)] * (values.ndim - 1))

    def kernel(q: Any, keys: Any, values: Any, lengths: Any, table: Any, starts: Any) -> Any:
        blocks = {"num_kv_pages_per_block": 128, "num_queries_per_block": 16}
        return module.ragged_paged_attention(q, keys, values, lengths, table, starts, 2, **blocks)[:50]

    def reference(q: Any, keys: Any, values: Any, *_: Any) -> Any:
        outputs = []
        for number, length in enumerate(lengths):
            own = q[starts[number] : starts[number + 1]]
            k, v = (one[:, known_table[number]].reshape(heads, -1, 128)[:, :length] for one in (keys, values))
            outputs.append(attend(own, k, v, causal(len(own), length)))
        return jnp.concatenate(outputs)

    arrays = (q, keys, values, wide(ints(*lengths), tokens), wide(table, tokens), wide(ints(*starts), tokens + 1))
    return Call(function=kernel, arrays=arrays, reference=reference)
