"""Kernels that JAX brings along, in ``jax/experimental/pallas/ops/tpu``."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.coverage.calls import (
    F32,
    Call,
    attend,
    case,
    enter,
    gradient,
    grouped,
    grouped_outer,
    integers,
    ints,
    normal,
    permuted,
)  # fmt: skip

TOP = "jax/experimental/pallas/ops/tpu/"
GROUPS = (40, 0, 130, 86)
"""Rows of each group, one without any."""


def _segments(module: Any, *shape: int) -> Any:
    ids = jnp.asarray(np.sort(np.asarray(integers("ids", 0, 3, *shape))), jnp.int32)
    return module.SegmentIds(q=ids, kv=ids)


def _flash(module: Any, *, backward: bool = False, extra: Any = lambda _: (), **options: Any) -> Call:
    sizes = module.BlockSizes(
        block_q=128, block_k_major=128, block_k=128, block_b=1, block_q_major_dkv=128, block_k_major_dkv=128,
        block_k_dkv=128, block_q_dkv=128, block_k_major_dq=128, block_k_dq=128, block_q_dq=128,
    )  # fmt: skip

    def kernel(*arrays: Any) -> Any:
        return module.flash_attention(*arrays, block_sizes=sizes, **options)

    def reference(q: Any, k: Any, v: Any, ab: Any = None, segments: Any = None) -> Any:
        q, k, v = (one.astype(F32) for one in (q, k, v))  # it rounds scores to the inputs' dtype
        return module.mha_reference_no_custom_vjp(q, k, v, ab, segments, **options).astype(jnp.bfloat16)

    shape = 1, 2, 256, 128
    heads = normal("q", *shape, scale=0.5), normal("k", *shape, scale=0.5), normal("v", *shape)
    if not backward:
        return Call(function=kernel, arrays=(*heads, *extra(module)), reference=reference)
    return Call(function=gradient(kernel), arrays=heads, reference=gradient(reference))


enter(
    TOP + "flash_attention.py",
    {
        "jax/flash attention": _flash,
        "jax/flash attention, causal": partial(_flash, causal=True, sm_scale=0.125),
        "jax/flash attention, bias": partial(_flash, extra=lambda _: (normal("bias", 1, 2, 256, 256, dtype=F32),)),
        "jax/flash attention, segments": partial(_flash, extra=lambda module: (None, _segments(module, 1, 256))),
        "jax/flash attention, backward": partial(_flash, backward=True),
        "jax/flash attention, causal backward": partial(_flash, backward=True, causal=True),
    },
)


def _splash(module: Any, mask: str = "causal", *, query_heads: int = 2, key_heads: int = 2, fused: bool | None = None,
            segments: bool = False, **options: Any) -> Call:  # fmt: skip
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    size, is_mqa = 256, key_heads == 1
    of_head = {
        "causal": lambda: masks.CausalMask((size, size)),
        "window": lambda: masks.LocalMask((size, size), (96, 32), 0),
        "full": lambda: masks.FullMask((size, size)),
        "chunked": lambda: masks.ChunkedCausalMask((size, size), 64),
        "random": lambda: masks.NumpyMask(np.asarray(integers("mask", 0, 2, size, size) + jnp.eye(size)) > 0),
    }[mask]  # fmt: skip
    many = masks.MultiHeadMask([of_head() for _ in range(query_heads)])
    sizes = module.BlockSizes(
        block_q=128, block_kv=128, block_kv_compute=128, block_q_dkv=128, block_kv_dkv=128, block_kv_dkv_compute=128,
        block_q_dq=None if fused else 128, block_kv_dq=None if fused else 128, use_fused_bwd_kernel=bool(fused),
    )  # fmt: skip
    make = module.make_splash_mqa_single_device if is_mqa else module.make_splash_mha_single_device
    dense = jnp.asarray(np.stack([np.asarray(of_head()[:, :]) for _ in range(query_heads)]))
    shape = (size, 128)
    q = normal("q", query_heads, *shape, scale=0.1)
    k, v = (normal(name, *(() if is_mqa else (key_heads,)), *shape, scale=0.3) for name in "kv")
    kernel = make(many, block_sizes=sizes, **options)

    def reference(q: Any, k: Any, v: Any, ids: Any = None) -> Any:
        group = query_heads // key_heads
        wide = [jnp.broadcast_to(one, (query_heads, *shape)) if is_mqa else jnp.repeat(one, group, 0) for one in (k, v)]
        one_head = partial(module.attention_reference, attn_logits_soft_cap=options.get("attn_logits_soft_cap"))
        heads = [one_head(dense[n], q[n], wide[0][n], wide[1][n], ids) for n in range(query_heads)]
        return jnp.stack(heads).astype(q.dtype)

    if fused is None:
        arrays = (q, k, v, *([_segments(module, size)] if segments else []))
        return Call(function=kernel, arrays=arrays, reference=reference)
    return Call(function=gradient(kernel), arrays=(q, k, v), reference=gradient(reference), tolerance=0.04)


enter(
    TOP + "splash_attention/splash_attention_kernel.py",
    {
        "jax/splash attention, causal": _splash,
        "jax/splash attention, window": partial(_splash, mask="window"),
        "jax/splash attention, chunked causal": partial(_splash, mask="chunked"),
        "jax/splash attention, any mask": partial(_splash, mask="random"),
        "jax/splash attention, multi-query": partial(_splash, query_heads=2, key_heads=1),
        "jax/splash attention, grouped-query": partial(_splash, query_heads=4, key_heads=2),
        "jax/splash attention, segments": partial(_splash, segments=True),
        "jax/splash attention, soft cap": partial(_splash, mask="full", attn_logits_soft_cap=10.0),
        "jax/splash attention, backward": partial(_splash, fused=False),
        "jax/splash attention, fused backward": partial(_splash, fused=True),
    },
)


def _paged(module: Any, *, quantised: bool = False, **options: Any) -> Call:
    from jax.experimental.pallas.ops.tpu.paged_attention import quantization_utils

    batch, heads, pages, page = 4, 2, 16, 16
    q = normal("q", batch, 8, 128, scale=0.1, dtype=F32)
    keys, values = (normal(name, heads, batch * pages, page, 128, dtype=F32) for name in ("k", "v"))
    if quantised:
        keys, values = (quantization_utils.quantize_to_int8(one) for one in (keys, values))
        keys, values = (quantization_utils.QuantizedTensor(*one) for one in (keys, values))
    lengths, table = ints(5, 256, 17, 100), permuted("pages", batch, pages)

    def kernel(*arrays: Any) -> Any:
        return module.paged_attention(*arrays, pages_per_compute_block=4, **options)

    def reference(q: Any, keys: Any, values: Any, lengths: Any, table: Any) -> Any:
        if quantised:
            keys, values = (quantization_utils.unquantize_from_int8(one, F32) for one in (keys, values))
        k, v = (one[:, table].reshape(heads, batch, pages * page, 128) for one in (keys, values))
        cap = options.get("attn_logits_soft_cap")
        seen = jnp.arange(pages * page) < lengths[:, None]
        return jnp.stack([attend(q[n : n + 1], k[:, n], v[:, n], seen[n], cap=cap)[0] for n in range(batch)])

    return Call(function=kernel, arrays=(q, keys, values, lengths, table), reference=reference)


enter(
    TOP + "paged_attention/paged_attention_kernel.py",
    {
        "jax/paged attention": _paged,
        "jax/paged attention, soft cap, a grid over blocks": partial(
            _paged, attn_logits_soft_cap=20.0, inline_seq_dim=False
        ),
        "jax/paged attention, int8 cache": partial(_paged, quantised=True),
    },
)


def ragged(module: Any, *, key_type: Any = jnp.bfloat16, **options: Any) -> Call:
    """The kernel of three sequences in pages, as JAX and as those who took it over have it."""
    arrays = (
        normal("q", 64, 8, 128, scale=0.1),
        normal("pages", 32, 16, 4, 128).astype(key_type),
        ints(60, 100, 33, 0),
        permuted("table", 4, 8),
        ints(0, 32, 33, 50, 50),
        ints(3),
    )
    known = tuple(map(np.asarray, arrays[2:]))

    def kernel(*given: Any) -> Any:
        blocks = {"num_kv_pages_per_block": 4, "num_queries_per_block": 16, "vmem_limit_bytes": 32 << 20}
        return module.ragged_paged_attention(*given, **blocks, **options)[:50]

    def reference(q: Any, pages: Any, *_: Any) -> Any:
        return module.ref_ragged_paged_attention(q, pages, *known, **options)

    return Call(function=kernel, arrays=arrays, reference=reference)


enter(
    TOP + "ragged_paged_attention/kernel.py",
    {
        "jax/ragged paged attention": partial(ragged, sm_scale=0.1),
        "jax/ragged paged attention, window and soft cap": partial(ragged, sliding_window=24, soft_cap=20.0),
        "jax/ragged paged attention, fp8 cache": partial(ragged, key_type=jnp.float8_e5m2, k_scale=0.5, v_scale=0.5),
    },
)


def _gmm(module: Any, *, transposed: bool = False) -> Call:
    def products(lhs: Any, rhs: Any, _sizes: Any) -> Any:
        return grouped(lhs, rhs.swapaxes(1, 2) if transposed else rhs, GROUPS).astype(F32)

    how = {"preferred_element_type": F32, "tiling": (128, 128, 128), "transpose_rhs": transposed}
    arrays = normal("lhs", 256, 256), normal("rhs", 4, 256, 256), ints(*GROUPS)
    return Call(function=partial(module.gmm, **how), arrays=arrays, reference=products)


def _tgmm(module: Any) -> Call:
    kernel = partial(module.tgmm, preferred_element_type=F32, tiling=(128, 128, 128))
    arrays = normal("lhs", 256, 256).T, normal("rhs", 256, 256), ints(*GROUPS)
    return Call(function=kernel, arrays=arrays, reference=lambda lhs, rhs, _: grouped_outer(lhs, rhs, GROUPS))


enter(
    TOP + "megablox/gmm.py",
    {
        "jax/grouped matmul": _gmm,
        "jax/grouped matmul, transposed": partial(_gmm, transposed=True),
        "jax/grouped matmul, of weights": _tgmm,
    },
)


@case("jax/grouped matmul, backward", path=TOP + "megablox/ops.py")
def _(module: Any) -> Call:
    def kernel(lhs: Any, rhs: Any, sizes: Any) -> Any:
        return module.gmm(lhs, rhs, sizes, F32, (128, 128, 128))

    def reference(lhs: Any, rhs: Any, _sizes: Any) -> Any:
        return grouped(lhs, rhs, GROUPS).astype(F32)

    arrays = normal("lhs", 256, 256), normal("rhs", 4, 256, 256), ints(*GROUPS)
    return Call(function=gradient(kernel, (0, 1)), arrays=arrays, reference=gradient(reference, (0, 1)))


@case("jax/matmul", path=TOP + "matmul.py")
def _(module: Any) -> Call:
    kernel = partial(module.matmul, block_shape=(128, 128), block_k=128)
    return Call(function=kernel, arrays=(normal("x", 256, 256), normal("y", 256, 256)), reference=jnp.matmul)


@case("jax/double", path=TOP + "example_kernel.py")
def _(module: Any) -> Call:
    x = normal("x", 64, 256, dtype=F32)
    return Call(function=module.double, arrays=(x,), reference=lambda x: 2 * x, tolerance=0.0)


@case("jax/threefry", path=TOP + "random/threefry.py")
def _(module: Any) -> Call:
    from jax._src.random.threefry2x32 import threefry_random_bits

    return Call(
        function=lambda key: module.plthreefry_random_bits(key, 32, (256, 256)),
        arrays=(jnp.asarray([1, 2], jnp.uint32),),
        reference=lambda key: threefry_random_bits(key, 32, (256, 256)),
        tolerance=0.0,
    )


@case("jax/philox", path=TOP + "random/philox.py")
def _(module: Any) -> Call:
    key = jnp.asarray([1, 2], jnp.uint32)
    return Call(function=lambda key: module.philox_random_bits(key, 32, (256, 256)), arrays=(key,), tolerance=0.0)
