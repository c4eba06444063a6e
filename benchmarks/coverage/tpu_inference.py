"""Kernels of vllm-project/tpu-inference."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.coverage.calls import F32, Call, case, enter, grouped, integers, ints, normal, permuted
from benchmarks.coverage.jax_ops import GROUPS, ragged

TOP = "tpu_inference/kernels/"
V2, V3, MLA = TOP + "ragged_paged_attention/v2/", TOP + "ragged_paged_attention/v3/", TOP + "mla/"
DEEPSEEK = TOP + "experimental/deepseek_v4/"
VMEM = {"vmem_limit_bytes": 64 << 20}


def _encoder(module: Any) -> Call:
    sizes = module.BlockSizes(block_b=1, block_q=128, block_k_major=128, block_k=128)
    kernel = partial(module.encoder_only_flash_attention, block_sizes=sizes, **VMEM)
    return Call(function=kernel, arrays=(*(normal(name, 256, 2, 128) for name in "qkv"), ints(100, 156)))


def _flash(module: Any) -> Call:
    sizes = module.BlockSizes(block_b=1, block_q=128, block_k_major=128, block_k=128)
    kernel = partial(module.flash_attention, causal=True, sm_scale=0.1, block_sizes=sizes, **VMEM)
    return Call(function=kernel, arrays=tuple(normal(name, 1, 2, 256, 128) for name in "qkv"))


enter(
    TOP + "flash_attention/kernel.py",
    {
        "tpu-inference/encoder-only flash attention": _encoder,
        "tpu-inference/flash attention, causal": _flash,
    },
)
enter(
    V2 + "kernel.py",
    {
        "tpu-inference/ragged paged attention v2": partial(ragged, sm_scale=0.1),
        "tpu-inference/ragged paged attention v2, window and soft cap": partial(
            ragged, sliding_window=24, soft_cap=20.0
        ),
    },
)


@case("tpu-inference/cache update v2", path=V2 + "ragged_kv_cache_update.py")
def _(module: Any) -> Call:
    starts, lengths = [25, 32, 64, 102, 487], [7, 32, 32, 1, 9]
    slices = jnp.asarray([starts, np.cumsum([0, *lengths[:-1]]), lengths], jnp.int32)

    def reference(new: Any, _slices: Any, cache: Any, _count: Any) -> Any:
        for start, origin, many in np.asarray(slices).T:
            cache = cache.at[start : start + many].set(new[origin : origin + many])
        return cache

    kernel = partial(module.kv_cache_update, page_size=32, num_slices_per_block=8)
    padded = jnp.pad(slices, ((0, 0), (0, 3)))
    arrays = (normal("new", 128, 16, 128), padded, normal("cache", 640, 16, 128), ints(5))
    return Call(function=kernel, arrays=arrays, reference=reference, tolerance=0.0)


def _mixed() -> tuple[Any, ...]:
    """Two sequences that decode and one that is prefilled: lengths, pages, first queries, and how many of each kind."""
    return ints(30, 60, 50, 0), permuted("table", 32), ints(0, 1, 2, 52, 52), ints(2, 2, 3)


def _beforehand(kernel: Any, reference: Any, arrays: tuple[Any, ...]) -> Call:
    """A call whose reference is computed now, because it wants to know its integers. It may donate its arguments."""
    with jax.ensure_compile_time_eval():
        wanted = reference(*map(jnp.copy, arrays))[0][:52]
    return Call(function=lambda *given: kernel(*given)[0][:52], arrays=arrays, reference=lambda *_: wanted)


def _ragged_v3(module: Any, *, key_type: Any = jnp.bfloat16, **options: Any) -> Call:
    arrays = (
        normal("q", 128, 4, 128, scale=0.3),
        normal("k", 128, 2, 128).astype(key_type),
        normal("v", 128, 2, 128).astype(key_type),
        normal("cache", *module.get_kv_cache_shape(32, 16, 2, 128, key_type)).astype(key_type),
        *_mixed(),
    )
    blocks = {f"{which}_block_sizes": (16, 32, 16, 32) for which in "dpm"}
    kernel = partial(module.ragged_paged_attention, **blocks, **VMEM, **options)
    return _beforehand(kernel, partial(module.ref_ragged_paged_attention, **options), arrays)


enter(
    V3 + "kernel.py",
    {
        "tpu-inference/ragged paged attention v3": partial(_ragged_v3, sm_scale=0.1),
        "tpu-inference/ragged paged attention v3, window and soft cap": partial(
            _ragged_v3, sliding_window=24, soft_cap=20.0
        ),
        "tpu-inference/ragged paged attention v3, fp8 cache": partial(
            _ragged_v3, key_type=jnp.float8_e4m3fn, k_scale=0.5, v_scale=0.5
        ),
    },
)


@case("tpu-inference/ragged paged attention v3, heads of 64, sinks", path=V3 + "kernel_hd64.py")
def _(module: Any) -> Call:
    arrays = (
        normal("q", 64, 4, 64, scale=0.3),
        normal("k", 64, 2, 64),
        normal("v", 64, 2, 64),
        normal("cache", *module.get_kv_cache_shape(32, 16, 2, 64, jnp.bfloat16)),
        *_mixed(),
        normal("sink", 4, dtype=F32),
    )
    blocks = {"num_kv_pages_per_block": 2, "num_queries_per_block": 16}
    kernel = partial(module.ragged_paged_attention_hd64, sm_scale=0.1, **blocks, **VMEM)
    return _beforehand(kernel, partial(module.ref_ragged_paged_attention_hd64, sm_scale=0.1), arrays)


@case("tpu-inference/latent attention v1", path=MLA + "v1/kernel.py")
def _(module: Any) -> Call:
    arrays = (
        normal("q", 64, 8, 256, scale=0.1),
        normal("rope", 64, 8, 64, scale=0.1),
        normal("latent", 64, 256),
        normal("key", 64, 64),
        normal("cache", *module.get_kv_cache_shape(32, 16, 256 + 128, jnp.bfloat16)),
        *_mixed(),
    )
    blocks = {"num_kv_pages_per_block": 2, "num_queries_per_block": 8}
    kernel = partial(module.mla_ragged_paged_attention, sm_scale=0.1, **blocks, **VMEM)
    return _beforehand(kernel, partial(module.ref_mla_ragged_paged_attention, sm_scale=0.1), arrays)


def _transpose(module: Any) -> Call:
    kernel = partial(module.xpose_pipeline, transpose_axes=(1, 0), n_tile=128, m_tile=128, vmem_limit_bytes=32 << 20)
    return Call(function=kernel, arrays=(normal("x", 256, 512),), reference=jnp.transpose, tolerance=0.0)


def _transpose_whole(module: Any) -> Call:
    kernel = partial(module.xpose_full, transpose_axes=(1, 0))
    return Call(function=kernel, arrays=(normal("x", 128, 256, dtype=F32),), reference=jnp.transpose, tolerance=0.0)


enter(
    MLA + "v2/transpose.py",
    {
        "tpu-inference/transpose, pipelined": _transpose,
        "tpu-inference/transpose, whole": _transpose_whole,
    },
)


def _quantised(
    module: Any, *, block: int | None = None, activations: Any = jnp.bfloat16, weights: Any = jnp.float8_e4m3fn
) -> Call:
    sizes = import_module("tpu_inference.kernels.quantized_matmul.tuned_block_sizes").TunedValue(128, 256, 256, 1)
    w = integers("w", -127, 128, 256, 512, dtype=jnp.int8).astype(weights)
    scales = normal("scale", *((512 // block, 1, 256) if block else (256,)), dtype=F32) ** 2 / 100

    def kernel(x: Any, w: Any, scales: Any) -> Any:
        return module.quantized_matmul_kernel(x, w, scales, block_size=block, x_q_dtype=activations, tuned_value=sizes)

    def reference(x: Any, w: Any, scales: Any) -> Any:
        parts = (one.astype(F32).reshape(len(one), -1, block or 512) for one in (x, w))
        return (jnp.einsum("bnk,onk->bno", *parts) * scales.reshape(1, -1, 256)).sum(1).astype(x.dtype)

    return Call(function=kernel, arrays=(normal("x", 128, 512), w, scales), reference=reference, tolerance=0.03)


enter(
    TOP + "quantized_matmul/kernel.py",
    {
        "tpu-inference/quantised matmul, int8": partial(_quantised, activations=jnp.int8, weights=jnp.int8),
        "tpu-inference/quantised matmul, fp8": _quantised,
    },
)
enter(
    TOP + "quantized_matmul/blockwise_kernel.py",
    {"tpu-inference/quantised matmul, in blocks": partial(_quantised, block=256)},
)


@case("tpu-inference/grouped matmul", path=TOP + "megablox/gmm.py")
def _(module: Any) -> Call:
    def reference(lhs: Any, rhs: Any, _sizes: Any) -> Any:
        return grouped(lhs.astype(F32), rhs.astype(F32), GROUPS).astype(lhs.dtype)

    kernel = partial(module.gmm, preferred_element_type=jnp.bfloat16, tiling=(128, 128, 128))
    arrays = normal("lhs", 256, 256), normal("rhs", 4, 256, 256), ints(*GROUPS)
    return Call(function=kernel, arrays=arrays, reference=reference)


def _gmm_v2(module: Any, weights: Any, scales: Any = None, **options: Any) -> Call:
    sizes = 20, 0, 60, 48

    def reference(lhs: Any, rhs: Any, _sizes: Any, scales: Any = None) -> Any:
        wide = rhs.astype(F32) if scales is None else rhs.astype(F32) * scales[:, :, 0]
        products = grouped(lhs.astype(F32), wide, sizes)
        if "fuse_act" in options:
            gate, up = jnp.split(products, 2, axis=1)
            products = jax.nn.silu(gate) * up
        return products.astype(lhs.dtype)

    arrays = (normal("lhs", 128, 256), weights(), ints(*sizes), *([] if scales is None else [scales()]))
    return Call(function=partial(module.gmm_v2, **VMEM, **options), arrays=arrays, reference=reference)


def _weights() -> Any:
    return normal("rhs", 4, 256, 256)


enter(
    TOP + "megablox/gmm_v2.py",
    {
        "tpu-inference/grouped matmul v2": partial(_gmm_v2, weights=_weights),
        "tpu-inference/grouped matmul v2, fused SiLU": partial(_gmm_v2, weights=_weights, fuse_act="silu"),
        "tpu-inference/grouped matmul v2, int8 weights": partial(
            _gmm_v2,
            weights=lambda: integers("rhs", -127, 128, 4, 256, 256, dtype=jnp.int8),
            scales=lambda: normal("scale", 4, 1, 1, 256, dtype=F32) ** 2,
            maybe_quantize_lhs=False,
        ),
    },
)


def _inverse(module: Any, name: str, **options: Any) -> Call:
    lower = np.tril(np.asarray(normal("A", 8, 64, 64, dtype=F32, scale=0.05)), -1)
    triangles = jnp.asarray(lower + np.eye(64, dtype=np.float32)).reshape(1, 2, 4, 64, 64)
    return Call(function=partial(getattr(module, name), **options), arrays=(triangles,), reference=jnp.linalg.inv)


enter(
    TOP + "gdn/triangle_solver.py",
    {
        "tpu-inference/triangular inverse, Newton-Schulz": partial(
            _inverse, name="newton_schulz_inverse_pallas", block_size=8
        ),
        "tpu-inference/triangular inverse, blocks": partial(
            _inverse, name="decompose_triangular_matrix_inverse_pallas", n_block_size=8
        ),
    },
)
HEADS = {"n_kq": 2, "n_v": 4, "d_k": 128, "d_v": 128}


def _delta_rule(tokens: int, starts: Any, counts: Any) -> tuple[Any, ...]:
    return (
        normal("qkv", tokens, 2 * 2 * 128 + 4 * 128),
        normal("b", tokens, 4),
        normal("a", tokens, 4),
        normal("state", 8, 4, 128, 128, dtype=F32, scale=0.1),
        normal("A", 4, dtype=F32),
        normal("bias", 4, dtype=F32),
        starts,
        permuted("slots", 8),
        counts,
    )


@case("tpu-inference/gated delta rule, decode", path=TOP + "gdn/v2/gdn_decode_kernel.py")
def _(module: Any) -> Call:
    def kernel(*given: Any) -> Any:
        started = jnp.ones((8,), bool)
        return module.ragged_gated_delta_rule_decode_only(*given, has_initial_state=started, apply_silu=True, **HEADS)

    return Call(function=kernel, arrays=_delta_rule(8, jnp.arange(9, dtype=jnp.int32), ints(8, 8, 8)))


@case("tpu-inference/gated delta rule, recurrent scan", path=TOP + "gdn/v2/recurrent_scan_v2.py")
def _(module: Any) -> Call:
    def kernel(*given: Any) -> Any:
        return module.recurrent_scan(*given, chunk_size=64, BT=64, **HEADS, **VMEM)[1][:128]

    return Call(function=kernel, arrays=_delta_rule(256, ints(0, 1, 2, 66, 128, *[128] * 4), ints(2, 4, 4)))


@case("tpu-inference/causal convolution, ragged", path=TOP + "causal_conv1d/causal_conv1d.py")
def _(module: Any) -> Call:
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
def _(module: Any) -> Call:
    sparsity = 1, 4
    rhs = normal("rhs", 512, 128)
    mask = module.gen_sparse_mask(jax.random.key(1), rhs.shape, sparsity, sparse_dim=0, stride=128)
    packed = module.Sparsifier(rhs, mask, sparsity=sparsity, sparse_dim=0, stride=128)

    def kernel(nonzeros: Any, metadata: Any, lhs: Any) -> Any:
        blocks = {"block_m": 128, "block_k": 512, "block_n": 128}
        how = {"rhs_sparse": True, "contract_sparse": True, "rhs_transpose": False, "stride": 128}
        return module.structured_spmm(sparsity, nonzeros, metadata, lhs, **how, **blocks)

    def reference(_nonzeros: Any, _metadata: Any, lhs: Any) -> Any:
        return jnp.dot(lhs, jnp.where(mask, rhs, 0), preferred_element_type=F32)

    arrays = packed.nonzeros, packed.metadata, normal("lhs", 128, 512)
    return Call(function=kernel, arrays=arrays, reference=reference)


def _mixes(module: Any) -> Call:
    def reference(x: Any, fn: Any) -> Any:
        wide = x.astype(F32)
        return wide @ fn.T, (wide * wide).sum(-1, keepdims=True)

    kernel = partial(module.mhc_pre_mixes, token_block_size=64, **VMEM)
    return Call(
        function=kernel, arrays=(normal("x", 128, 4 * 256), normal("fn", 24, 4 * 256, dtype=F32)), reference=reference
    )


def _before_a_layer(module: Any) -> Call:
    def kernel(*given: Any) -> Any:
        return module.mhc_pre(*given, 1e-6, 1e-6, 1e-6, 2.0, 3, **VMEM)

    arrays = (
        normal("x", 128, 4, 256),
        normal("fn", 24, 4 * 256, dtype=F32, scale=0.05),
        normal("scale", 3, dtype=F32),
        normal("base", 24, dtype=F32),
    )
    return Call(function=kernel, arrays=arrays)


enter(
    DEEPSEEK + "mhc/pre_kernel.py",
    {
        "tpu-inference/hyper-connections, mixes": _mixes,
        "tpu-inference/hyper-connections, before a layer": _before_a_layer,
    },
)


@case("tpu-inference/hyper-connections, after a layer", path=DEEPSEEK + "mhc/post_kernel.py")
def _(module: Any) -> Call:
    def reference(x: Any, residual: Any, post: Any, mixes: Any) -> Any:
        mixed = jnp.einsum("tij,tih->tjh", mixes, residual.astype(F32))
        return (mixed + post * x[:, None].astype(F32)).astype(residual.dtype)

    arrays = (
        normal("x", 128, 256),
        normal("residual", 128, 4, 256),
        normal("post", 128, 4, 1, dtype=F32),
        normal("mixes", 128, 4, 4, dtype=F32),
    )
    return Call(function=partial(module.mhc_post, **VMEM), arrays=arrays, reference=reference)


def _rope(module: Any, name: str, head: int = 512) -> Call:
    angles = np.arange(64)[:, None] / 100 ** (np.arange(32) / 32)
    table = jnp.asarray(np.concatenate([np.cos(angles), np.sin(angles)], 1), F32)
    arrays = normal("x", 64, 8, head), integers("positions", 0, 64, 64), table
    return Call(function=getattr(module, name), arrays=arrays)


enter(
    DEEPSEEK + "rope.py",
    {
        "tpu-inference/rotary embedding": partial(_rope, name="rope"),
        "tpu-inference/norm and rotary embedding": partial(_rope, name="qnorm_rope"),
        "tpu-inference/rotary embedding, quantised": partial(_rope, name="rope_quant", head=128),
    },
)
