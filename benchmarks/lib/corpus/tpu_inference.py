"""Kernels of vllm-project/tpu-inference."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.lib.corpus.case import Call, case
from benchmarks.lib.corpus.inputs import integers, ints, normal, parts, permuted

TOP = "tpu_inference/kernels/"
V2, V3, MLA = TOP + "ragged_paged_attention/v2/", TOP + "ragged_paged_attention/v3/", TOP + "mla/"
DEEPSEEK = TOP + "experimental/deepseek_v4/"


def _module(path: str) -> Any:
    return import_module(path.removesuffix(".py").replace("/", "."))


@case("tpu-inference/encoder-only flash attention", path=TOP + "flash_attention/kernel.py")
def _() -> Call:
    module = _module(TOP + "flash_attention/kernel.py")
    sizes = module.BlockSizes(block_b=1, block_q=128, block_k_major=128, block_k=128)
    kernel = partial(module.encoder_only_flash_attention, block_sizes=sizes, vmem_limit_bytes=64 << 20)
    q, k, v = (normal(name, 256, 2, 128) for name in "qkv")
    return Call(function=kernel, arrays=(q, k, v, ints(100, 156)))


@case("tpu-inference/flash attention, causal", path=TOP + "flash_attention/kernel.py")
def _() -> Call:
    module = _module(TOP + "flash_attention/kernel.py")
    sizes = module.BlockSizes(block_b=1, block_q=128, block_k_major=128, block_k=128)
    kernel = partial(module.flash_attention, causal=True, sm_scale=0.1, block_sizes=sizes, vmem_limit_bytes=64 << 20)
    return Call(function=kernel, arrays=tuple(normal(name, 1, 2, 256, 128) for name in "qkv"))


def _ragged_v2(**options: Any) -> Call:
    module = _module(V2 + "kernel.py")
    arrays = (
        normal("q", 64, 8, 128, scale=0.1),
        normal("pages", 32, 16, 4, 128),
        ints(60, 100, 33, 0),
        permuted("table", 4, 8),
        ints(0, 32, 33, 50, 50),
        ints(3),
    )
    lengths, table, starts, count = map(np.asarray, arrays[2:])

    def kernel(*given: Any) -> Any:
        blocks = {"num_kv_pages_per_block": 4, "num_queries_per_block": 16, "vmem_limit_bytes": 32 << 20}
        return module.ragged_paged_attention(*given, **blocks, **options)[:50]

    def reference(q: Any, pages: Any, *_: Any) -> Any:
        return module.ref_ragged_paged_attention(q, pages, lengths, table, starts, count, **options)

    return Call(function=kernel, arrays=arrays, reference=reference)


@case("tpu-inference/ragged paged attention v2", path=V2 + "kernel.py")
def _() -> Call:
    return _ragged_v2(sm_scale=0.1)


@case("tpu-inference/ragged paged attention v2, window and soft cap", path=V2 + "kernel.py")
def _() -> Call:
    return _ragged_v2(sliding_window=24, soft_cap=20.0)


@case("tpu-inference/cache update v2", path=V2 + "ragged_kv_cache_update.py")
def _() -> Call:
    module = _module(V2 + "ragged_kv_cache_update.py")
    starts, lengths = [25, 32, 64, 102, 487], [7, 32, 32, 1, 9]
    slices = jnp.asarray([starts, np.cumsum([0, *lengths[:-1]]), lengths], jnp.int32)

    def reference(new: Any, _slices: Any, cache: Any, _count: Any) -> Any:
        for start, origin, many in np.asarray(slices).T:
            cache = cache.at[start : start + many].set(new[origin : origin + many])
        return cache

    kernel = partial(module.kv_cache_update, page_size=32, num_slices_per_block=8)
    slices = jnp.pad(slices, ((0, 0), (0, 3)))
    arrays = (normal("new", 128, 16, 128), slices, normal("cache", 640, 16, 128), ints(5))
    return Call(function=kernel, arrays=arrays, reference=reference, tolerance=0.0)


def _ragged_v3(file: str, head: int, *, key_type: Any = jnp.bfloat16, **options: Any) -> Call:
    module = _module(V3 + file)
    tokens, query_heads, key_heads, page = 128, 4, 2, 16
    lengths, starts = ints(30, 60, 50, 0), ints(0, 1, 2, 52, 52)
    shape = module.get_kv_cache_shape(32, page, key_heads, head, key_type)
    arrays = (
        normal("q", tokens, query_heads, head, scale=0.3),
        normal("k", tokens, key_heads, head).astype(key_type),
        normal("v", tokens, key_heads, head).astype(key_type),
        normal("cache", *shape).astype(key_type),
        lengths,
        permuted("table", 32),
        starts,
        ints(2, 2, 3),
    )
    known = tuple(map(np.asarray, arrays[4:]))

    def kernel(*given: Any) -> Any:
        sizes = (16, 32, 16, 32)
        blocks = {f"{which}_block_sizes": sizes for which in "dpm"}
        return module.ragged_paged_attention(*given, **blocks, vmem_limit_bytes=64 << 20, **options)[0][:52]

    def reference(q: Any, k: Any, v: Any, cache: Any, *_: Any) -> Any:
        return module.ref_ragged_paged_attention(q, k, v, cache, *map(jnp.asarray, known), **options)[0][:52]

    with jax.ensure_compile_time_eval():
        wanted = reference(*arrays)
    return Call(function=kernel, arrays=arrays, reference=lambda *_: wanted)


@case("tpu-inference/ragged paged attention v3", path=V3 + "kernel.py")
def _() -> Call:
    return _ragged_v3("kernel.py", 128, sm_scale=0.1)


@case("tpu-inference/ragged paged attention v3, window and soft cap", path=V3 + "kernel.py")
def _() -> Call:
    return _ragged_v3("kernel.py", 128, sliding_window=24, soft_cap=20.0)


@case("tpu-inference/ragged paged attention v3, fp8 cache", path=V3 + "kernel.py")
def _() -> Call:
    return _ragged_v3("kernel.py", 128, key_type=jnp.float8_e4m3fn, k_scale=0.5, v_scale=0.5)


@case("tpu-inference/ragged paged attention v3, heads of 64, sinks", path=V3 + "kernel_hd64.py")
def _() -> Call:
    module = _module(V3 + "kernel_hd64.py")
    tokens, query_heads, key_heads = 64, 4, 2
    arrays = (
        normal("q", tokens, query_heads, 64, scale=0.3),
        normal("k", tokens, key_heads, 64),
        normal("v", tokens, key_heads, 64),
        normal("cache", *module.get_kv_cache_shape(32, 16, key_heads, 64, jnp.bfloat16)),
        ints(30, 60, 50, 0),
        permuted("table", 32),
        ints(0, 1, 2, 52, 52),
        ints(2, 2, 3),
        normal("sink", query_heads, dtype=jnp.float32),
    )

    def kernel(*given: Any) -> Any:
        blocks = {"num_kv_pages_per_block": 2, "num_queries_per_block": 16, "vmem_limit_bytes": 64 << 20}
        return module.ragged_paged_attention_hd64(*given, sm_scale=0.1, **blocks)[0][:52]

    with jax.ensure_compile_time_eval():
        wanted = module.ref_ragged_paged_attention_hd64(*arrays, sm_scale=0.1)[0][:52]
    return Call(function=kernel, arrays=arrays, reference=lambda *_: wanted)


@case("tpu-inference/latent attention v1", path=MLA + "v1/kernel.py")
def _() -> Call:
    module = _module(MLA + "v1/kernel.py")
    tokens, heads, page = 64, 8, 16
    arrays = (
        normal("q", tokens, heads, 256, scale=0.1),
        normal("rope", tokens, heads, 64, scale=0.1),
        normal("latent", tokens, 256),
        normal("key", tokens, 64),
        normal("cache", *module.get_kv_cache_shape(32, page, 256 + 128, jnp.bfloat16)),
        ints(30, 60, 50, 0),
        permuted("table", 32),
        ints(0, 1, 2, 52, 52),
        ints(2, 2, 3),
    )

    def kernel(*given: Any) -> Any:
        blocks = {"num_kv_pages_per_block": 2, "num_queries_per_block": 8, "vmem_limit_bytes": 64 << 20}
        return module.mla_ragged_paged_attention(*given, sm_scale=0.1, **blocks)[0][:52]

    with jax.ensure_compile_time_eval():
        given = map(jnp.copy, arrays)  # it donates the cache
        wanted = module.ref_mla_ragged_paged_attention(*given, sm_scale=0.1)[0][:52]
    return Call(function=kernel, arrays=arrays, reference=lambda *_: wanted)


@case("tpu-inference/transpose, pipelined", path=MLA + "v2/transpose.py")
def _() -> Call:
    module = _module(MLA + "v2/transpose.py")
    kernel = partial(module.xpose_pipeline, transpose_axes=(1, 0), n_tile=128, m_tile=128, vmem_limit_bytes=32 << 20)
    return Call(function=kernel, arrays=(normal("x", 256, 512),), reference=jnp.transpose, tolerance=0.0)


@case("tpu-inference/transpose, whole", path=MLA + "v2/transpose.py")
def _() -> Call:
    module = _module(MLA + "v2/transpose.py")
    return Call(
        function=lambda x: module.xpose_full(x, transpose_axes=(1, 0)),
        arrays=(normal("x", 128, 256, dtype=jnp.float32),),
        reference=jnp.transpose,
        tolerance=0.0,
    )


def _quantised(file: str, *, block: int | None = None, activations: Any = jnp.int8, weights: Any = jnp.int8) -> Call:
    module = _module(TOP + f"quantized_matmul/{file}.py")
    tuned = _module(TOP + "quantized_matmul/tuned_block_sizes.py").TunedValue(128, 256, 256, 1)
    w = integers("w", -127, 128, 256, 512, dtype=jnp.int8).astype(weights)
    scales = normal("scale", *((512 // block, 1, 256) if block else (256,)), dtype=jnp.float32) ** 2 / 100

    def kernel(x: Any, w: Any, scales: Any) -> Any:
        return module.quantized_matmul_kernel(x, w, scales, block_size=block, x_q_dtype=activations, tuned_value=tuned)

    def reference(x: Any, w: Any, scales: Any) -> Any:
        parts = (
            x.astype(jnp.float32).reshape(128, -1, block or 512),
            w.astype(jnp.float32).reshape(256, -1, block or 512),
        )
        return (jnp.einsum("bnk,onk->bno", *parts) * scales.reshape(1, -1, 256)).sum(1).astype(x.dtype)

    x = normal("x", 128, 512)
    return Call(function=kernel, arrays=(x, w, scales), reference=reference, tolerance=0.03)


@case("tpu-inference/quantised matmul, int8", path=TOP + "quantized_matmul/kernel.py")
def _() -> Call:
    return _quantised("kernel")


@case("tpu-inference/quantised matmul, fp8", path=TOP + "quantized_matmul/kernel.py")
def _() -> Call:
    return _quantised("kernel", activations=jnp.bfloat16, weights=jnp.float8_e4m3fn)


@case("tpu-inference/quantised matmul, in blocks", path=TOP + "quantized_matmul/blockwise_kernel.py")
def _() -> Call:
    return _quantised("blockwise_kernel", block=256, activations=jnp.bfloat16, weights=jnp.float8_e4m3fn)


def _groups(lhs: Any, rhs: Any, sizes: tuple[int, ...]) -> Any:
    products = [lhs[a:b].astype(jnp.float32) @ rhs[n].astype(jnp.float32) for n, (a, b) in enumerate(parts(sizes))]
    return jnp.concatenate(products).astype(lhs.dtype)


@case("tpu-inference/grouped matmul", path=TOP + "megablox/gmm.py")
def _() -> Call:
    module, sizes = _module(TOP + "megablox/gmm.py"), (40, 0, 130, 86)
    kernel = partial(module.gmm, preferred_element_type=jnp.bfloat16, tiling=(128, 128, 128))
    arrays = normal("lhs", 256, 256), normal("rhs", 4, 256, 256), ints(*sizes)
    return Call(function=kernel, arrays=arrays, reference=lambda lhs, rhs, _: _groups(lhs, rhs, sizes))


def _gmm_v2(**options: Any) -> Call:
    module, sizes = _module(TOP + "megablox/gmm_v2.py"), (20, 0, 60, 48)
    kernel = partial(module.gmm_v2, vmem_limit_bytes=64 << 20, **options)
    arrays = normal("lhs", 128, 256), normal("rhs", 4, 256, 256), ints(*sizes)

    def reference(lhs: Any, rhs: Any, _sizes: Any) -> Any:
        products = _groups(lhs.astype(jnp.float32), rhs, sizes)
        if options:
            gate, up = jnp.split(products, 2, axis=1)
            products = jax.nn.silu(gate) * up
        return products.astype(lhs.dtype)

    return Call(function=kernel, arrays=arrays, reference=reference)


@case("tpu-inference/grouped matmul v2", path=TOP + "megablox/gmm_v2.py")
def _() -> Call:
    return _gmm_v2()


@case("tpu-inference/grouped matmul v2, fused SiLU", path=TOP + "megablox/gmm_v2.py")
def _() -> Call:
    return _gmm_v2(fuse_act="silu")


@case("tpu-inference/grouped matmul v2, int8 weights", path=TOP + "megablox/gmm_v2.py")
def _() -> Call:
    module, sizes = _module(TOP + "megablox/gmm_v2.py"), (20, 0, 60, 48)
    kernel = partial(module.gmm_v2, vmem_limit_bytes=64 << 20, maybe_quantize_lhs=False)
    scales = normal("scale", 4, 1, 1, 256, dtype=jnp.float32) ** 2

    def reference(lhs: Any, rhs: Any, _sizes: Any, scales: Any) -> Any:
        return _groups(lhs, rhs.astype(jnp.float32) * scales[:, :, 0], sizes)

    weights = integers("rhs", -127, 128, 4, 256, 256, dtype=jnp.int8)
    return Call(function=kernel, arrays=(normal("lhs", 128, 256), weights, ints(*sizes), scales), reference=reference)


def _triangles() -> Any:
    lower = np.tril(np.asarray(normal("A", 8, 64, 64, dtype=jnp.float32, scale=0.05)), -1)
    return jnp.asarray(lower + np.eye(64, dtype=np.float32)).reshape(1, 2, 4, 64, 64)


@case("tpu-inference/triangular inverse, Newton-Schulz", path=TOP + "gdn/triangle_solver.py")
def _() -> Call:
    module = _module(TOP + "gdn/triangle_solver.py")
    kernel = partial(module.newton_schulz_inverse_pallas, block_size=8)
    return Call(function=kernel, arrays=(_triangles(),), reference=jnp.linalg.inv)


@case("tpu-inference/triangular inverse, blocks", path=TOP + "gdn/triangle_solver.py")
def _() -> Call:
    module = _module(TOP + "gdn/triangle_solver.py")
    kernel = partial(module.decompose_triangular_matrix_inverse_pallas, n_block_size=8)
    return Call(function=kernel, arrays=(_triangles(),), reference=jnp.linalg.inv)


@case("tpu-inference/gated delta rule, decode", path=TOP + "gdn/v2/gdn_decode_kernel.py")
def _() -> Call:
    module = _module(TOP + "gdn/v2/gdn_decode_kernel.py")
    many, states, heads = 8, 8, {"n_kq": 2, "n_v": 4, "d_k": 128, "d_v": 128}
    arrays = (
        normal("qkv", many, 2 * 2 * 128 + 4 * 128),
        normal("b", many, 4),
        normal("a", many, 4),
        normal("state", states, 4, 128, 128, dtype=jnp.float32, scale=0.1),
        normal("A", 4, dtype=jnp.float32),
        normal("bias", 4, dtype=jnp.float32),
        jnp.arange(many + 1, dtype=jnp.int32),
        permuted("slots", states),
        ints(8, 8, 8),
    )

    def kernel(*given: Any) -> Any:
        started = jnp.ones((states,), bool)
        return module.ragged_gated_delta_rule_decode_only(*given, has_initial_state=started, apply_silu=True, **heads)

    return Call(function=kernel, arrays=arrays)


@case("tpu-inference/gated delta rule, recurrent scan", path=TOP + "gdn/v2/recurrent_scan_v2.py")
def _() -> Call:
    module = _module(TOP + "gdn/v2/recurrent_scan_v2.py")
    tokens, states, heads = 256, 8, {"n_kq": 2, "n_v": 4, "d_k": 128, "d_v": 128}
    arrays = (
        normal("qkv", tokens, 2 * 2 * 128 + 4 * 128),
        normal("b", tokens, 4),
        normal("a", tokens, 4),
        normal("state", states, 4, 128, 128, dtype=jnp.float32, scale=0.1),
        normal("A", 4, dtype=jnp.float32),
        normal("bias", 4, dtype=jnp.float32),
        ints(0, 1, 2, 66, 128, *[128] * 4),
        permuted("slots", states),
        ints(2, 4, 4),
    )

    def kernel(*given: Any) -> Any:
        blocks = {"chunk_size": 64, "BT": 64, "vmem_limit_bytes": 64 << 20}
        return module.recurrent_scan(*given, **heads, **blocks)[1][:128]

    return Call(function=kernel, arrays=arrays)


@case("tpu-inference/causal convolution, ragged", path=TOP + "causal_conv1d/causal_conv1d.py")
def _() -> Call:
    module = _module(TOP + "causal_conv1d/causal_conv1d.py")
    arrays = (
        normal("x", 128, 128),
        normal("state", 4, 3, 128),
        normal("weight", 128, 1, 4),
        normal("bias", 128),
        ints(0, 50, 128, 128),
        ints(1, 2, 3),
        ints(0, 0, 2),
        jnp.asarray([True, False, False]),
    )
    return Call(function=partial(module.ragged_causal_conv1d, kernel_size=4), arrays=arrays)


@case("tpu-inference/structured sparse matmul", path=TOP + "structured_sparse_matmul/v1/spmm.py")
def _() -> Call:
    module = _module(TOP + "structured_sparse_matmul/v1/spmm.py")
    sparse, key = {"sparsity": (1, 4), "stride": 128}, jax.random.key(1)
    rhs = normal("rhs", 512, 128)
    mask = module.gen_sparse_mask(key, rhs.shape, sparse["sparsity"], sparse_dim=0, stride=128)
    packed = module.Sparsifier(rhs, mask, sparsity=sparse["sparsity"], sparse_dim=0, stride=128)

    def kernel(nonzeros: Any, metadata: Any, lhs: Any) -> Any:
        blocks = {"block_m": 128, "block_k": 512, "block_n": 128}
        how = {"rhs_sparse": True, "contract_sparse": True, "rhs_transpose": False, "stride": 128}
        return module.structured_spmm(sparse["sparsity"], nonzeros, metadata, lhs, **how, **blocks)

    def reference(_nonzeros: Any, _metadata: Any, lhs: Any) -> Any:
        return jnp.dot(lhs, jnp.where(mask, rhs, 0), preferred_element_type=jnp.float32)

    nonzeros, metadata = packed.nonzeros, packed.metadata
    return Call(function=kernel, arrays=(nonzeros, metadata, normal("lhs", 128, 512)), reference=reference)


@case("tpu-inference/hyper-connections, mixes", path=DEEPSEEK + "mhc/pre_kernel.py")
def _() -> Call:
    module = _module(DEEPSEEK + "mhc/pre_kernel.py")

    def reference(x: Any, fn: Any) -> Any:
        wide = x.astype(jnp.float32)
        return wide @ fn.T, (wide * wide).sum(-1, keepdims=True)

    kernel = partial(module.mhc_pre_mixes, token_block_size=64, vmem_limit_bytes=64 << 20)
    arrays = normal("x", 128, 4 * 256), normal("fn", 24, 4 * 256, dtype=jnp.float32)
    return Call(function=kernel, arrays=arrays, reference=reference)


@case("tpu-inference/hyper-connections, before a layer", path=DEEPSEEK + "mhc/pre_kernel.py")
def _() -> Call:
    module = _module(DEEPSEEK + "mhc/pre_kernel.py")

    def kernel(residual: Any, fn: Any, scale: Any, base: Any) -> Any:
        return module.mhc_pre(residual, fn, scale, base, 1e-6, 1e-6, 1e-6, 2.0, 3, vmem_limit_bytes=64 << 20)

    arrays = (
        normal("x", 128, 4, 256),
        normal("fn", 24, 4 * 256, dtype=jnp.float32, scale=0.05),
        normal("scale", 3, dtype=jnp.float32),
        normal("base", 24, dtype=jnp.float32),
    )
    return Call(function=kernel, arrays=arrays)


@case("tpu-inference/hyper-connections, after a layer", path=DEEPSEEK + "mhc/post_kernel.py")
def _() -> Call:
    module = _module(DEEPSEEK + "mhc/post_kernel.py")

    def reference(x: Any, residual: Any, post: Any, mixes: Any) -> Any:
        mixed = jnp.einsum("tij,tih->tjh", mixes, residual.astype(jnp.float32))
        return (mixed + post * x[:, None].astype(jnp.float32)).astype(residual.dtype)

    arrays = (
        normal("x", 128, 256),
        normal("residual", 128, 4, 256),
        normal("post", 128, 4, 1, dtype=jnp.float32),
        normal("mixes", 128, 4, 4, dtype=jnp.float32),
    )
    return Call(function=partial(module.mhc_post, vmem_limit_bytes=64 << 20), arrays=arrays, reference=reference)


def _rope(name: str, head: int = 512) -> Call:
    module = _module(DEEPSEEK + "rope.py")
    angles = np.arange(64)[:, None] / 100 ** (np.arange(32) / 32)
    table = jnp.asarray(np.concatenate([np.cos(angles), np.sin(angles)], 1), jnp.float32)
    return Call(
        function=getattr(module, name),
        arrays=(normal("x", 64, 8, head), integers("positions", 0, 64, 64), table),
    )


@case("tpu-inference/rotary embedding", path=DEEPSEEK + "rope.py")
def _() -> Call:
    return _rope("rope")


@case("tpu-inference/norm and rotary embedding", path=DEEPSEEK + "rope.py")
def _() -> Call:
    return _rope("qnorm_rope")


@case("tpu-inference/rotary embedding, quantised", path=DEEPSEEK + "rope.py")
def _() -> Call:
    return _rope("rope_quant", 128)
