"""Kernels that JAX brings along, in ``jax/experimental/pallas/ops/tpu``."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.lib.corpus.case import Call, case
from benchmarks.lib.corpus.inputs import integers, ints, normal, parts, permuted

TOP = "jax/experimental/pallas/ops/tpu/"
FLASH, SPLASH = TOP + "flash_attention.py", TOP + "splash_attention/splash_attention_kernel.py"
PAGED, RAGGED = TOP + "paged_attention/paged_attention_kernel.py", TOP + "ragged_paged_attention/kernel.py"
GMM = TOP + "megablox/gmm.py"
GROUPS = (40, 0, 130, 86)
"""Rows of each group, one without any."""


def _heads(*shape: int) -> tuple[Any, Any, Any]:
    return normal("q", *shape, scale=0.5), normal("k", *shape, scale=0.5), normal("v", *shape)


def _flash(*, backward: bool = False, extra: Any = (), **options: Any) -> Call:
    from jax.experimental.pallas.ops.tpu import flash_attention as module

    sizes = module.BlockSizes(
        block_q=128, block_k_major=128, block_k=128, block_b=1, block_q_major_dkv=128, block_k_major_dkv=128,
        block_k_dkv=128, block_q_dkv=128, block_k_major_dq=128, block_k_dq=128, block_q_dq=128,
    )  # fmt: skip

    def kernel(*arrays: Any) -> Any:
        return module.flash_attention(*arrays, block_sizes=sizes, **options)

    def reference(q: Any, k: Any, v: Any, ab: Any = None, segments: Any = None) -> Any:
        q, k, v = (one.astype(jnp.float32) for one in (q, k, v))  # it rounds scores to the inputs' dtype
        return module.mha_reference_no_custom_vjp(q, k, v, ab, segments, **options).astype(jnp.bfloat16)

    arrays = (*_heads(1, 2, 256, 128), *extra)
    if not backward:
        return Call(function=kernel, arrays=arrays, reference=reference)
    return Call(function=_gradient(kernel), arrays=arrays, reference=_gradient(reference))


def _gradient(function: Any, inputs: tuple[int, ...] = (0, 1, 2)) -> Any:
    return jax.grad(lambda *arrays: (function(*arrays).astype(jnp.float32) ** 2).sum(), argnums=inputs)


@case("jax/flash attention", path=FLASH)
def _() -> Call:
    return _flash()


@case("jax/flash attention, causal", path=FLASH)
def _() -> Call:
    return _flash(causal=True, sm_scale=0.125)


@case("jax/flash attention, bias", path=FLASH)
def _() -> Call:
    return _flash(extra=(normal("bias", 1, 2, 256, 256, dtype=jnp.float32),))


@case("jax/flash attention, segments", path=FLASH)
def _() -> Call:
    from jax.experimental.pallas.ops.tpu.flash_attention import SegmentIds

    ids = jnp.asarray(np.sort(np.asarray(integers("ids", 0, 3, 1, 256))), jnp.int32)
    return _flash(extra=(None, SegmentIds(q=ids, kv=ids)))


@case("jax/flash attention, backward", path=FLASH)
def _() -> Call:
    return _flash(backward=True)


@case("jax/flash attention, causal backward", path=FLASH)
def _() -> Call:
    return _flash(backward=True, causal=True)


def _splash(mask: str = "causal", *, query_heads: int = 2, key_heads: int = 2, fused: bool | None = None,
            segments: bool = False, **options: Any) -> Call:  # fmt: skip
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as module
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
    ids: Any = ()
    if segments:
        one = jnp.asarray(np.sort(np.asarray(integers("ids", 0, 3, size))), jnp.int32)
        ids = (module.SegmentIds(q=one, kv=one),)
    splash = make(many, block_sizes=sizes, **options)

    def kernel(*arrays: Any) -> Any:
        return splash(*arrays)

    def reference(q: Any, k: Any, v: Any, ids: Any = None) -> Any:
        group = query_heads // key_heads
        wide = [jnp.broadcast_to(one, (query_heads, *shape)) if is_mqa else jnp.repeat(one, group, 0) for one in (k, v)]
        one_head = partial(module.attention_reference, attn_logits_soft_cap=options.get("attn_logits_soft_cap"))
        heads = [one_head(dense[n], q[n], wide[0][n], wide[1][n], ids) for n in range(query_heads)]
        return jnp.stack(heads).astype(q.dtype)

    if fused is None:
        return Call(function=kernel, arrays=(q, k, v, *ids), reference=reference)
    return Call(function=_gradient(kernel), arrays=(q, k, v, *ids), reference=_gradient(reference), tolerance=0.04)


@case("jax/splash attention, causal", path=SPLASH)
def _() -> Call:
    return _splash()


@case("jax/splash attention, window", path=SPLASH)
def _() -> Call:
    return _splash("window")


@case("jax/splash attention, chunked causal", path=SPLASH)
def _() -> Call:
    return _splash("chunked")


@case("jax/splash attention, any mask", path=SPLASH)
def _() -> Call:
    return _splash("random")


@case("jax/splash attention, multi-query", path=SPLASH)
def _() -> Call:
    return _splash(query_heads=2, key_heads=1)


@case("jax/splash attention, grouped-query", path=SPLASH)
def _() -> Call:
    return _splash(query_heads=4, key_heads=2)


@case("jax/splash attention, segments", path=SPLASH)
def _() -> Call:
    return _splash(segments=True)


@case("jax/splash attention, soft cap", path=SPLASH)
def _() -> Call:
    return _splash("full", attn_logits_soft_cap=10.0)


@case("jax/splash attention, backward", path=SPLASH)
def _() -> Call:
    return _splash(fused=False)


@case("jax/splash attention, fused backward", path=SPLASH)
def _() -> Call:
    return _splash(fused=True)


def _paged(*, quantised: bool = False, **options: Any) -> Call:
    from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention_kernel as module
    from jax.experimental.pallas.ops.tpu.paged_attention import quantization_utils

    batch, heads, pages, page = 4, 2, 16, 16
    q = normal("q", batch, 8, 128, scale=0.1, dtype=jnp.float32)
    shape = heads, batch * pages, page, 128
    keys, values = (normal(name, *shape, dtype=jnp.float32) for name in ("k", "v"))
    if quantised:
        keys, values = (quantization_utils.quantize_to_int8(one) for one in (keys, values))
        keys, values = (quantization_utils.QuantizedTensor(*one) for one in (keys, values))
    lengths, table = ints(5, 256, 0 + 17, 100), permuted("pages", batch, pages)

    def kernel(*arrays: Any) -> Any:
        return module.paged_attention(*arrays, pages_per_compute_block=4, **options)

    def reference(q: Any, keys: Any, values: Any, lengths: Any, table: Any) -> Any:
        if quantised:
            keys, values = (quantization_utils.unquantize_from_int8(one, jnp.float32) for one in (keys, values))
        k, v = (one[:, table].reshape(heads, batch, pages * page, 128) for one in (keys, values))
        grouped = q.reshape(batch, heads, 4, 128)
        logits = jnp.einsum("bhgd,hbsd->bhgs", grouped, k)
        if cap := options.get("attn_logits_soft_cap"):
            logits = cap * jnp.tanh(logits / cap)
        seen = jnp.arange(pages * page) < lengths[:, None, None, None]
        weights = jax.nn.softmax(jnp.where(seen, logits, -1e30), axis=-1)
        return jnp.einsum("bhgs,hbsd->bhgd", weights, v).reshape(q.shape)

    return Call(function=kernel, arrays=(q, keys, values, lengths, table), reference=reference)


@case("jax/paged attention", path=PAGED)
def _() -> Call:
    return _paged()


@case("jax/paged attention, soft cap, a grid over blocks", path=PAGED)
def _() -> Call:
    return _paged(attn_logits_soft_cap=20.0, inline_seq_dim=False)


@case("jax/paged attention, int8 cache", path=PAGED)
def _() -> Call:
    return _paged(quantised=True)


def _ragged(*, key_type: Any = jnp.bfloat16, **options: Any) -> Call:
    from jax.experimental.pallas.ops.tpu.ragged_paged_attention import kernel as module

    q = normal("q", 64, 8, 128, scale=0.1)
    pages = normal("pages", 32, 16, 4, 128).astype(key_type)
    lengths, starts, count = ints(60, 100, 33, 0), ints(0, 32, 33, 50, 50), ints(3)
    arrays = (q, pages, lengths, permuted("table", 4, 8), starts, count)

    def kernel(*arrays: Any) -> Any:
        blocks = {"num_kv_pages_per_block": 4, "num_queries_per_block": 16, "vmem_limit_bytes": 32 << 20}
        return module.ragged_paged_attention(*arrays, **blocks, **options)[:50]

    def reference(q: Any, pages: Any, lengths: Any, table: Any, starts: Any, count: Any) -> Any:
        known = (np.asarray(lengths_), np.asarray(table_), np.asarray(starts_), np.asarray(count_))
        return module.ref_ragged_paged_attention(q, pages, *known, **options)

    _, _, lengths_, table_, starts_, count_ = arrays
    return Call(function=kernel, arrays=arrays, reference=reference)


@case("jax/ragged paged attention", path=RAGGED)
def _() -> Call:
    return _ragged(sm_scale=0.1)


@case("jax/ragged paged attention, window and soft cap", path=RAGGED)
def _() -> Call:
    return _ragged(sliding_window=24, soft_cap=20.0)


@case("jax/ragged paged attention, fp8 cache", path=RAGGED)
def _() -> Call:
    return _ragged(key_type=jnp.float8_e5m2, k_scale=0.5, v_scale=0.5)


def _gmm(kind: str) -> Call:
    module = import_module("jax.experimental.pallas.ops.tpu.megablox.gmm")  # its package has a function of that name
    lhs, sizes, tile = normal("lhs", 256, 256), ints(*GROUPS), (128, 128, 128)

    def products(lhs: Any, rhs: Any, _sizes: Any) -> Any:
        groups = [lhs[a:b] @ (rhs[n].T if kind == "transposed" else rhs[n]) for n, (a, b) in enumerate(parts(GROUPS))]
        return jnp.concatenate(groups).astype(jnp.float32)

    def outer(lhs: Any, rhs: Any, _sizes: Any) -> Any:
        return jnp.stack([lhs[:, a:b].astype(jnp.float32) @ rhs[a:b].astype(jnp.float32) for a, b in parts(GROUPS)])

    if kind == "outer":
        kernel = partial(module.tgmm, preferred_element_type=jnp.float32, tiling=tile)
        return Call(function=kernel, arrays=(lhs.T, normal("rhs", 256, 256), sizes), reference=outer)
    kernel = partial(module.gmm, preferred_element_type=jnp.float32, tiling=tile, transpose_rhs=kind == "transposed")
    return Call(function=kernel, arrays=(lhs, normal("rhs", 4, 256, 256), sizes), reference=products)


@case("jax/grouped matmul", path=GMM)
def _() -> Call:
    return _gmm("plain")


@case("jax/grouped matmul, transposed", path=GMM)
def _() -> Call:
    return _gmm("transposed")


@case("jax/grouped matmul, of weights", path=GMM)
def _() -> Call:
    return _gmm("outer")


@case("jax/grouped matmul, backward", path=TOP + "megablox/ops.py")
def _() -> Call:
    from jax.experimental.pallas.ops.tpu.megablox import ops

    def kernel(lhs: Any, rhs: Any, sizes: Any) -> Any:
        return ops.gmm(lhs, rhs, sizes, jnp.float32, (128, 128, 128))

    def reference(lhs: Any, rhs: Any, _sizes: Any) -> Any:
        groups = [lhs[a:b] @ rhs[n] for n, (a, b) in enumerate(parts(GROUPS))]
        return jnp.concatenate(groups).astype(jnp.float32)

    arrays = normal("lhs", 256, 256), normal("rhs", 4, 256, 256), ints(*GROUPS)
    return Call(function=_gradient(kernel, (0, 1)), arrays=arrays, reference=_gradient(reference, (0, 1)))


@case("jax/matmul", path=TOP + "matmul.py")
def _() -> Call:
    from jax.experimental.pallas.ops.tpu import matmul as module

    kernel = partial(module.matmul, block_shape=(128, 128), block_k=128)
    return Call(function=kernel, arrays=(normal("x", 256, 256), normal("y", 256, 256)), reference=jnp.matmul)


@case("jax/double", path=TOP + "example_kernel.py")
def _() -> Call:
    from jax.experimental.pallas.ops.tpu import example_kernel

    x = normal("x", 64, 256, dtype=jnp.float32)
    return Call(function=example_kernel.double, arrays=(x,), reference=lambda x: 2 * x, tolerance=0.0)


@case("jax/threefry", path=TOP + "random/threefry.py")
def _() -> Call:
    from jax._src.random.threefry2x32 import threefry_random_bits
    from jax.experimental.pallas.ops.tpu.random import threefry

    key = jnp.asarray([1, 2], jnp.uint32)
    return Call(
        function=lambda key: threefry.plthreefry_random_bits(key, 32, (256, 256)),
        arrays=(key,),
        reference=lambda key: threefry_random_bits(key, 32, (256, 256)),
        tolerance=0.0,
    )


@case("jax/philox", path=TOP + "random/philox.py")
def _() -> Call:
    from jax.experimental.pallas.ops.tpu.random import philox

    key = jnp.asarray([1, 2], jnp.uint32)
    return Call(function=lambda key: philox.philox_random_bits(key, 32, (256, 256)), arrays=(key,), tolerance=0.0)
