"""Kernels of frameworks that run on several chips: matmuls that gather, experts, and attention, each over the chips."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from benchmarks.coverage.calls import F32, Call, attend, enter, gradient, normal

CHIPS = 8
INFERENCE = "tpu_inference/kernels/"
SGLANG = "python/sgl_jax/srt/kernels/fused_moe/"


def _ambient() -> Any:
    return jax.sharding.get_abstract_mesh()


# --- matmul ---


def _product(x: Any, w: Any) -> Any:
    return x.astype(F32) @ w.astype(F32)


def _all_gather_matmul(module: Any, *, transposed: bool = False, chips: int = CHIPS, **blocks: int) -> Call:
    def kernel(x: Any, y: Any) -> Any:
        return module.all_gather_matmul(x, y, _ambient(), "x", rhs_transpose=transposed, **blocks)

    def reference(x: Any, y: Any) -> Any:
        return _product(x, y.T if transposed else y)

    depth, width = 512, 256 * chips
    y = normal("y", *((width, depth) if transposed else (depth, width)))
    specs = P("x"), P("x") if transposed else P(None, "x")
    arrays = normal("x", 32 * chips, depth), y
    return Call(function=kernel, arrays=arrays, reference=reference, mesh={"x": chips}, specs=specs)


enter(
    INFERENCE + "collectives/all_gather_matmul.py",
    {
        "tpu-inference/all-gather matmul": partial(_all_gather_matmul, bn=256, bk=512),
        "tpu-inference/all-gather matmul, blocks": partial(_all_gather_matmul, bn=128, bk=128),
        "tpu-inference/all-gather matmul, transposed": partial(_all_gather_matmul, bn=128, bk=256, transposed=True),
        "tpu-inference/all-gather matmul, four chips": partial(_all_gather_matmul, bn=256, bk=256, chips=4),
    },
)


def _pod(module: Any, name: str, *arrays: Any, specs: tuple[Any, ...], out: Any, reference: Any) -> Call:
    """One turn of a loop around a kernel for four chips of v5p."""

    def kernel(*given: Any) -> Any:
        def local(*parts: Any) -> Any:
            return getattr(module, f"{name}_pallas_launch")(*parts, **({} if "exchange" in name else {"loop_iters": 1}))

        return jax.shard_map(local, in_specs=specs, out_specs=out, check_vma=False)(*given)

    where = {"chip": "v5p", "mesh": {"i": 4}, "specs": specs}
    return Call(function=kernel, arrays=arrays, reference=reference, **where)


def _rows(module: Any, name: str, reference: Any, *, rows: int = 64, gathers: bool = False) -> Call:
    x, out = normal("x", rows, 8, 128, dtype=F32), P() if gathers else P("i")
    return _pod(module, name, x, specs=(P("i"),), out=out, reference=reference)


enter(
    "collectives.py",
    {
        "tpu-collectives/exchange of neighbours": partial(
            _rows,
            name="exchange_with_neighbor",
            reference=lambda x: x.reshape(2, 2, -1, 8, 128)[:, ::-1].reshape(x.shape),
        ),
        "tpu-collectives/reduce-scatter": partial(
            _rows, name="reduce_scatter", rows=256, reference=lambda x: x.reshape(4, -1, 8, 128).sum(0)
        ),
        "tpu-collectives/all-gather": partial(_rows, name="all_gather", reference=lambda x: x, gathers=True),
    },
)


def _gathered_product(module: Any) -> Call:
    specs = P(None, "i"), P(None, "i")
    arrays = normal("x", module.N_BATCH, module.K1), normal("w", module.K1, 4 * 256)
    return _pod(module, "all_gather_matmul", *arrays, specs=specs, out=P(None, "i"), reference=_product)


def _scattered_product(module: Any) -> Call:
    specs = P(None, "i"), P("i")
    arrays = normal("x", module.N_BATCH, 4 * 256), normal("w", 4 * 256, module.K1)
    return _pod(module, "matmul_reduce_scatter", *arrays, specs=specs, out=P(None, "i"), reference=_product)


enter(
    "collective_matmul.py",
    {
        "tpu-collectives/all-gather matmul": _gathered_product,
        "tpu-collectives/matmul reduce-scatter": _scattered_product,
    },
)


# --- experts ---

EXPERTS, HIDDEN, INNER, TOP = 16, 512, 256, 2
LINE = {"data": 1, "model": CHIPS}


def _experts(module: Any, **options: Any) -> Call:
    blocks = {"bt": 8, "bf": 128, "bd1": 256, "bd2": 256, "btc": 8, "bfc": 128, "bd1c": 256, "bd2c": 256}

    def kernel(*arrays: Any) -> Any:
        return module.fused_ep_moe(_ambient(), *arrays, TOP, **blocks, **options)

    def reference(*arrays: Any) -> Any:
        return module.ref_moe(*arrays, TOP, **options)

    arrays = (
        normal("tokens", 8 * CHIPS, HIDDEN, scale=0.1),
        normal("w1", EXPERTS, 2, HIDDEN, INNER, scale=0.1),
        normal("w2", EXPERTS, INNER, HIDDEN, scale=0.1),
        normal("gates", 8 * CHIPS, EXPERTS, dtype=F32, scale=3.0).astype(jnp.bfloat16),
    )
    return Call(function=kernel, arrays=arrays, reference=reference, mesh=LINE, specs=(P("model"),) * 4)


enter(
    INFERENCE + "fused_moe/v1/kernel.py",
    {
        "tpu-inference/experts over chips": _experts,
        "tpu-inference/experts over chips, sigmoid": partial(
            _experts, scoring_fn="sigmoid", renormalize_topk_logits=True, act_fn="swigluoai"
        ),
    },
)


def _routed(weights: Any) -> tuple[Any, Any]:
    top, chosen = jax.lax.top_k(weights, TOP)
    return jax.nn.softmax(top), chosen.astype(jnp.int32)


def _expert_arrays() -> tuple[Any, ...]:
    gates = normal("gates", 8 * CHIPS, EXPERTS, dtype=F32, scale=3.0)
    w1, w3 = (normal(name, EXPERTS, HIDDEN, INNER, scale=0.1) for name in ("w1", "w3"))
    tokens, w2 = normal("tokens", 8 * CHIPS, HIDDEN, scale=0.1), normal("w2", EXPERTS, INNER, HIDDEN, scale=0.1)
    return tokens, w1, w2, w3, *_routed(gates)


def _mixed(tokens: Any, w1: Any, w2: Any, w3: Any, weights: Any, chosen: Any) -> Any:
    """All experts for all tokens, of which the chosen ones count."""
    x, w1, w2, w3 = (one.astype(F32) for one in (tokens, w1, w2, w3))
    inner = jax.nn.silu(jnp.einsum("th,ehi->eti", x, w1)) * jnp.einsum("th,ehi->eti", x, w3)
    each = jnp.einsum("eti,eih->teh", inner, w2)
    return jnp.einsum("tk,tkh->th", weights, jnp.take_along_axis(each, chosen[:, :, None], axis=1))


def _routed_experts(module: Any, name: str, blocks: dict[str, int], **options: Any) -> Call:
    def kernel(*arrays: Any) -> Any:
        config = module.FusedMoEBlockConfig(**blocks)
        return getattr(module, name)(_ambient(), *arrays, TOP, block_config=config, **options)

    specs = (P(("data", "tensor")),) * 6
    mesh = {"data": 1, "tensor": CHIPS}
    return Call(function=kernel, arrays=_expert_arrays(), reference=_mixed, mesh=mesh, specs=specs)


_V1 = {"bt": 8, "bf": 128, "bd1": 256, "bd2": 256, "btc": 8, "bfc": 128, "bd1c": 256, "bd2c": 256, "bse": 128}
_V2 = {"bt": 8, "bf": 128, "btc": 8, "bse": 128}
enter(
    SGLANG + "v1/kernel.py",
    {"sglang-jax/experts over chips v1": partial(_routed_experts, name="fused_ep_moe", blocks=_V1)},
)
enter(
    SGLANG + "v2/kernel.py",
    {"sglang-jax/experts over chips v2": partial(_routed_experts, name="fused_ep_moe_v2", blocks=_V2)},
)


# --- attention ---


def _ring(module: Any, kind: str = "causal", *, key_heads: int = 2, chips: int = 4, backward: bool = False,
          causal: Any = lambda masks, size: masks.CausalMask((size, size))) -> Call:  # fmt: skip
    package = module.__name__.rpartition(".")[0]
    masks, splash = (import_module(f"{package}.splash_attention_{name}") for name in ("mask", "kernel"))
    size, block = 128 * chips, 128
    dense = np.tri(size, dtype=bool) if kind == "causal" else np.ones((size, size), bool)
    lazy = masks.FullMask((size, size)) if kind == "full" else causal(masks, size)
    config = splash.SplashConfig(
        block_q=block, block_kv=block, block_kv_compute=block, use_base2_exp=False, fuse_reciprocal=True,
        **({"block_q_dkv": block, "block_kv_dkv": block, "block_kv_dkv_compute": block} if backward else {}),
    )  # fmt: skip
    ring = module.make_ring_attention(
        lazy, is_mqa=key_heads == 1, ring_axis="ring", config=config, q_seq_shards=chips, kv_seq_shards=chips
    )
    keys = P("ring") if key_heads == 1 else P(None, "ring")
    specs = P(None, "ring"), keys, keys

    def kernel(q: Any, k: Any, v: Any) -> Any:
        def local(ring: Any, *arrays: Any) -> Any:
            return ring(*arrays)

        placed = ring.manual_sharding_spec(), *specs
        return jax.shard_map(local, in_specs=placed, out_specs=specs[0], check_vma=False)(ring, q, k, v)

    def reference(q: Any, k: Any, v: Any) -> Any:
        k, v = (one.reshape(-1, size, 128) for one in (k, v))
        return attend(q.swapaxes(0, 1), k, v, dense).swapaxes(0, 1)

    q = normal("q", 2, size, 128, scale=0.1)
    k, v = (normal(name, *((key_heads,) if key_heads > 1 else ()), size, 128, scale=0.3) for name in "kv")
    where = {"mesh": {"ring": chips}, "specs": specs}
    if not backward:
        return Call(function=kernel, arrays=(q, k, v), reference=reference, **where)
    return Call(function=gradient(kernel), arrays=(q, k, v), reference=gradient(reference), tolerance=0.04, **where)


def _dense(masks: Any, size: int) -> Any:
    return masks.make_causal_mask((size, size))


enter(
    "tokamax/_src/ops/experimental/tpu/splash_attention/ring_attention_kernel.py",
    {
        "tokamax/ring attention, full": partial(_ring, kind="full"),
        "tokamax/ring attention, causal": partial(_ring, causal=_dense),
        "tokamax/ring attention, multi-query": partial(_ring, kind="full", key_heads=1),
        "tokamax/ring attention, backward": partial(_ring, kind="full", backward=True),
    },
)
enter(
    "src/maxtext/kernels/tokamax_splash_attention/ring_attention_kernel.py",
    {
        "maxtext/ring attention, full": partial(_ring, kind="full"),
        "maxtext/ring attention, causal": _ring,
        "maxtext/ring attention, multi-query": partial(_ring, kind="full", key_heads=1),
        "maxtext/ring attention, backward": partial(_ring, kind="full", backward=True),
    },
)
