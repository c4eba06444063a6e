"""Kernels of openxla/tokamax, AI-Hypercomputer/maxtext, apple/axlearn, google/qwix and sdh1014/pallas-kernel."""

from __future__ import annotations

import itertools
from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.lib.corpus.case import Call, case
from benchmarks.lib.corpus.inputs import integers, ints, normal, parts

TOKAMAX = "tokamax/_src/ops/"
SPLASH = TOKAMAX + "experimental/tpu/splash_attention/splash_attention_kernel.py"
LOSS = TOKAMAX + "linear_softmax_cross_entropy_loss/pallas_mosaic_tpu_kernel.py"
RAGGED = TOKAMAX + "ragged_dot/pallas_mosaic_tpu_kernel.py"
MAXTEXT = "src/maxtext/kernels/"
QWIX = "qwix/contrib/kernels/"
TOPS = "tops/ops/"
SIZES = (40, 0, 130, 86)


def _module(path: str) -> Any:
    return import_module(path.removeprefix("src/").removesuffix(".py").replace("/", "."))


def _gradient(function: Any, inputs: tuple[int, ...] = (0, 1, 2)) -> Any:
    return jax.grad(lambda *arrays: (function(*arrays).astype(jnp.float32) ** 2).sum(), argnums=inputs)


def _attend(mask: np.ndarray, cap: float | None = None) -> Any:
    """Attention of ``[heads, tokens, 128]`` in float32, keys and values repeated to as many heads; without a scale."""

    def reference(q: Any, k: Any, v: Any) -> Any:
        heads = [one.reshape(-1, *one.shape[-2:]) for one in (k, v)]
        k, v = (jnp.repeat(one, q.shape[0] // one.shape[0], 0) for one in heads)
        logits = jnp.einsum("hqd,hkd->hqk", q.astype(jnp.float32), k.astype(jnp.float32))
        logits = cap * jnp.tanh(logits / cap) if cap else logits
        weights = jax.nn.softmax(jnp.where(jnp.asarray(mask), logits, -1e30), -1)
        return jnp.einsum("hqk,hkd->hqd", weights, v.astype(jnp.float32)).astype(q.dtype)

    return reference


def _splash(path: str, kind: str = "causal", *, key_heads: int = 2, backward: bool = False, **options: Any) -> Call:
    module = _module(path)
    masks = _module(path.replace("_kernel.py", "_mask.py"))
    size = 256
    place = np.arange(size)
    ahead = place[:, None] - place[None, :]
    mask, dense = {
        "causal": lambda: (masks.CausalMask((size, size)), ahead >= 0),
        "window": lambda: (masks.LocalMask((size, size), (96, 32), 0), (ahead <= 96) & (ahead >= -32)),
        "full": lambda: (masks.FullMask((size, size)), np.ones((size, size), bool)),
    }[kind]()
    config = module.SplashConfig(
        block_q=128, block_kv=128, block_kv_compute=128, block_q_dkv=128, block_kv_dkv=128, block_kv_dkv_compute=128,
        **options,
    )  # fmt: skip
    make = module.make_splash_mha_single_device if key_heads > 1 else module.make_splash_mqa_single_device
    splash = make(mask, config=config)
    q = normal("q", 4, size, 128, scale=0.1)
    k, v = (normal(name, *((key_heads,) if key_heads > 1 else ()), size, 128, scale=0.3) for name in "kv")
    reference = _attend(dense, options.get("attn_logits_soft_cap"))

    def kernel(*arrays: Any) -> Any:
        return splash(*arrays)

    if not backward:
        return Call(function=kernel, arrays=(q, k, v), reference=reference)
    return Call(function=_gradient(kernel), arrays=(q, k, v), reference=_gradient(reference), tolerance=0.04)


@case("tokamax/splash attention, causal", path=SPLASH)
def _() -> Call:
    return _splash(SPLASH)


@case("tokamax/splash attention, window", path=SPLASH)
def _() -> Call:
    return _splash(SPLASH, "window")


@case("tokamax/splash attention, multi-query, soft cap", path=SPLASH)
def _() -> Call:
    return _splash(SPLASH, "full", key_heads=1, attn_logits_soft_cap=10.0)


@case("tokamax/splash attention, diagonal skipped", path=SPLASH)
def _() -> Call:
    return _splash(SPLASH, qk_diag_skip=True)


@case("tokamax/splash attention, backward", path=SPLASH)
def _() -> Call:
    return _splash(SPLASH, backward=True)


def _products(lhs: Any, rhs: Any, *_: Any) -> Any:
    groups = [lhs[a:b].astype(jnp.float32) @ rhs[n].astype(jnp.float32) for n, (a, b) in enumerate(parts(SIZES))]
    return jnp.concatenate(groups).astype(jnp.bfloat16)


def _outer(lhs: Any, rhs: Any, *_: Any) -> Any:
    groups = [lhs[a:b].astype(jnp.float32).T @ rhs[a:b].astype(jnp.float32) for a, b in parts(SIZES)]
    return jnp.stack(groups).astype(jnp.bfloat16)


@case("tokamax/ragged dot", path=RAGGED)
def _() -> Call:
    module = _module(RAGGED)
    how = {"precision": jax.lax.Precision.DEFAULT, "out_dtype": jnp.bfloat16, "tiling": (128, 128, 128)}
    arrays = normal("lhs", 256, 256), normal("rhs", 4, 256, 256), ints(*SIZES)
    return Call(function=lambda *given: module.gmm(*given, **how), arrays=arrays, reference=_products)


@case("tokamax/ragged dot, activation", path=RAGGED)
def _() -> Call:
    module = _module(RAGGED)
    how = {"precision": jax.lax.Precision.DEFAULT, "out_dtype": jnp.bfloat16, "tiling": (128, 128, 128)}

    def reference(lhs: Any, rhs: Any, _sizes: Any) -> Any:
        groups = [lhs[a:b].astype(jnp.float32) @ rhs[n].astype(jnp.float32) for n, (a, b) in enumerate(parts(SIZES))]
        return jax.nn.relu(jnp.concatenate(groups)).astype(jnp.bfloat16)

    arrays = normal("lhs", 256, 256), normal("rhs", 4, 256, 256), ints(*SIZES)
    return Call(function=lambda *a: module.gmm(*a, activation=jax.nn.relu, **how), arrays=arrays, reference=reference)


@case("tokamax/ragged dot, of weights", path=RAGGED)
def _() -> Call:
    module = _module(RAGGED)
    how = {"precision": jax.lax.Precision.DEFAULT, "out_dtype": jnp.bfloat16, "tiling": (128, 128, 128)}
    arrays = normal("lhs", 256, 256), normal("rhs", 256, 256), ints(*SIZES)
    return Call(function=lambda lhs, rhs, sizes: module.tgmm(lhs.T, rhs, sizes, **how), arrays=arrays, reference=_outer)


def _loss(*, backward: bool) -> Call:
    module = _module(LOSS)
    blocks = {"b_block_size": 128, "h_block_size": 128, "v_block_size": 256}
    x, w = normal("x", 256, 256, dtype=jnp.float32), normal("w", 256, 512, dtype=jnp.float32, scale=0.1)
    labels = integers("labels", 0, 512, 256)

    def loss(x: Any, labels: Any, w: Any) -> Any:
        logits = x @ w
        sums = jax.nn.logsumexp(logits, axis=1)
        return jnp.sum(sums - jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]), sums

    if not backward:
        kernel = partial(module.linear_softmax_cross_entropy_loss_fwd_pallas_mosaic_tpu, reduction="sum", **blocks)
        return Call(function=kernel, arrays=(x, labels, w), reference=loss)

    def kernel_backward(dout: Any, lse: Any, x: Any, labels: Any, w: Any) -> Any:
        return module.linear_softmax_cross_entropy_loss_bwd_pallas_mosaic_tpu(
            dout, lse, x, labels, w, reduction="sum", **blocks
        )

    def reference(_dout: Any, _lse: Any, x: Any, labels: Any, w: Any) -> Any:
        return jax.grad(lambda x, w: loss(x, labels, w)[0], argnums=(0, 1))(x, w)

    arrays = (jnp.float32(1), jax.nn.logsumexp(x @ w, axis=1), x, labels, w)
    return Call(function=kernel_backward, arrays=arrays, reference=reference)


@case("tokamax/cross-entropy of a linear layer", path=LOSS)
def _() -> Call:
    return _loss(backward=False)


@case("tokamax/cross-entropy of a linear layer, backward", path=LOSS)
def _() -> Call:
    return _loss(backward=True)


@case("tokamax/grouped matmul v2, of weights", path=TOKAMAX + "experimental/gmm_v2/tgmm_v2.py")
def _() -> Call:
    module = _module(TOKAMAX + "experimental/gmm_v2/tgmm_v2.py")
    how = {"num_actual_groups": 4, "vmem_limit_bytes": 64 << 20, "preferred_element_type": jnp.bfloat16}
    arrays = normal("lhs", 256, 256), normal("rhs", 256, 256), ints(*SIZES)
    return Call(function=partial(module.tgmm_v2, **how), arrays=arrays, reference=_outer)


def _ragged(name: str) -> Call:
    module = _module(MAXTEXT + "attention/ragged_attention.py")
    query_heads, heads = {"mqa": (8, 1), "mha": (4, 4), "gqa": (8, 2)}[name]
    size = 256
    shapes = {
        "mqa": ((2, query_heads, 128), (2, size, 128)),
        "mha": ((2, 1, query_heads, 128), (2, size, query_heads, 128)),
        "gqa": ((2, 1, query_heads, 128), (2, size, heads, 128)),
    }[name]
    q, k, v = (
        normal("q", *shapes[0], dtype=jnp.float32, scale=0.1),
        *(normal(n, *shapes[1], dtype=jnp.float32) for n in "kv"),
    )

    def kernel(*arrays: Any) -> Any:
        out, _, denominator = getattr(module, f"ragged_{name}")(*arrays, block_size=128)
        return out if name == "mqa" else out / denominator

    def reference(q: Any, k: Any, v: Any, lengths: Any) -> Any:
        if name == "gqa":
            return module.reference_gqa(q[:, 0], k.swapaxes(1, 2), v.swapaxes(1, 2), lengths)[0]
        return getattr(module, f"reference_{name}")(q, k, v, lengths)[0]

    return Call(function=kernel, arrays=(q, k, v, ints(100, 200)), reference=reference)


@case("maxtext/ragged attention, multi-query", path=MAXTEXT + "attention/ragged_attention.py")
def _() -> Call:
    return _ragged("mqa")


@case("maxtext/ragged attention, multi-head", path=MAXTEXT + "attention/ragged_attention.py")
def _() -> Call:
    return _ragged("mha")


@case("maxtext/ragged attention, grouped-query", path=MAXTEXT + "attention/ragged_attention.py")
def _() -> Call:
    return _ragged("gqa")


def _streams(*, backward: bool) -> Call:
    common, forward = _module(MAXTEXT + "mhc/common.py"), _module(MAXTEXT + "mhc/mhc_kernels_fwd.py")
    batch, tokens, streams, width = 1, 128, 4, 256
    flat, count = streams * width, 24
    config = common.MhcKernelConfig(
        block_size=64, bwd_block_size=32, bwd_feature_block_size=256, vmem_limit_bytes=64 << 20
    )
    weights = common.MhcWeights(
        norm_scale=normal("norm", flat),
        pre_alpha=normal("pre", flat, streams, scale=0.1), pre_bias=normal("pb", streams), pre_scale=normal("ps", 1),
        post_alpha=normal("post", flat, streams, scale=0.1), post_bias=normal("ob", streams),
        post_scale=normal("os", 1),
        res_alpha=normal("res", flat, count, scale=0.1), res_bias=normal("rb", count), res_scale=normal("rs", 1),
    )  # fmt: skip
    permutations = jnp.eye(streams)[jnp.asarray(list(itertools.permutations(range(streams))))]

    def kernel(x: Any) -> Any:
        inner, context = forward.pre(x, weights, permutations, config)
        return forward.post(inner, context, config)

    function = _gradient(kernel, (0,)) if backward else kernel
    return Call(function=function, arrays=(normal("x", batch, tokens, streams, width),))


@case("maxtext/hyper-connections", path=MAXTEXT + "mhc/mhc_kernels_fwd.py")
def _() -> Call:
    return _streams(backward=False)


@case("maxtext/hyper-connections, backward", path=MAXTEXT + "mhc/mhc_kernels_bwd.py")
def _() -> Call:
    return _streams(backward=True)


@case("maxtext/grouped matmul v2", path=MAXTEXT + "megablox/pallas_mosaic_tpu_v2_gmm_kernel.py")
def _() -> Call:
    module = _module(MAXTEXT + "megablox/pallas_mosaic_tpu_v2_gmm_kernel.py")
    kernel = partial(module.gmm_v2, vmem_limit_bytes=64 << 20, preferred_element_type=jnp.bfloat16)
    arrays = normal("lhs", 256, 256), normal("rhs", 4, 256, 256), ints(*SIZES)
    return Call(function=kernel, arrays=arrays, reference=_products)


@case("maxtext/splash attention, its own", path=MAXTEXT + "attention/splash_attention_kernel.py")
def _() -> Call:
    path = MAXTEXT + "attention/splash_attention_kernel.py"
    module, masks = (
        _module(path),
        import_module("jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask"),
    )
    sizes = module.BlockSizes(block_q=128, block_kv=128, block_kv_compute=128)
    mask = masks.MultiHeadMask([masks.CausalMask((256, 256)) for _ in range(2)])
    splash = module.make_splash_mha_single_device(mask, block_sizes=sizes)
    arrays = tuple(normal(name, 2, 256, 128, scale=0.3) for name in "qkv")
    place = np.arange(256)
    return Call(function=splash, arrays=arrays, reference=_attend(place[:, None] >= place))


def _log_probs(top: int) -> Call:
    module = _module("axlearn/common/kernels/online_softmax_log_probs.py")

    def kernel(x: Any, w: Any) -> Any:  # ids of nearly equal logits depend on rounding
        made = module.online_softmax_log_probs_pallas(x, w, top_k=top, tile_s=128, tile_v=256)
        return made[:2] if top else made

    def reference(x: Any, w: Any) -> Any:
        logits = jnp.einsum("bsh,vh->bsv", x, w)
        sums = jax.nn.logsumexp(logits, axis=-1)
        return (sums, jax.lax.top_k(logits, top)[0]) if top else sums

    arrays = normal("x", 2, 128, 128, dtype=jnp.float32, scale=0.1), normal("w", 512, 128, dtype=jnp.float32)
    return Call(function=kernel, arrays=arrays, reference=reference)


@case("axlearn/log normaliser", path="axlearn/common/kernels/online_softmax_log_probs.py")
def _() -> Call:
    return _log_probs(0)


@case("axlearn/log normaliser and top k", path="axlearn/common/kernels/online_softmax_log_probs.py")
def _() -> Call:
    return _log_probs(4)


def _scaled(size: int, name: str, shape: tuple[int, int]) -> Any:
    rows, columns = shape
    values = integers(name, -120, 120, size, size, dtype=jnp.int8)
    return values, jnp.abs(normal(name + " scale", rows, columns, dtype=jnp.float32))


def _unscaled(values: Any, scales: Any) -> Any:
    rows, columns = values.shape[0] // scales.shape[0], values.shape[1] // scales.shape[1]
    return values.astype(jnp.float32) * jnp.repeat(jnp.repeat(scales, rows, 0), columns, 1)


@case("qwix/quantised matmul", path=QWIX + "quantized_matmul.py")
def _() -> Call:
    module = _module(QWIX + "quantized_matmul.py")
    kernel = partial(module.quantized_matmul, bm=128, bk=128, bn=128, dtype=jnp.float32)
    arrays = (*_scaled(256, "x", (2, 2)), *_scaled(256, "y", (2, 2)))
    return Call(function=kernel, arrays=arrays, reference=lambda x, sx, y, sy: _unscaled(x, sx) @ _unscaled(y, sy))


@case("qwix/matmul that quantises", path=QWIX + "lhs_fused_quantized_matmul.py")
def _() -> Call:
    module = _module(QWIX + "lhs_fused_quantized_matmul.py")
    kernel = partial(module.lhs_fused_quantized_matmul, bm=128, bk=128, bn=128, sm=2)
    arrays = (normal("x", 256, 256, dtype=jnp.float32), *_scaled(256, "y", (2, 2)))
    return Call(function=kernel, arrays=arrays, reference=lambda x, y, sy: x @ _unscaled(y, sy), tolerance=0.03)


@case("qwix/Hadamard transform that quantises", path=QWIX + "fused_hadamard_quantize.py")
def _() -> Call:
    module = _module(QWIX + "fused_hadamard_quantize.py")
    kernel = partial(module.fused_hadamard_quantize, bm=128, bn=128, sm=2, sn=2, hadamard_power=7)
    return Call(function=kernel, arrays=(normal("x", 256, 256, dtype=jnp.float32),))


@case("qwix/Hadamard matmul that quantises", path=QWIX + "fused_hadamard_quantized_matmul.py")
def _() -> Call:
    module = _module(QWIX + "fused_hadamard_quantized_matmul.py")
    kernel = partial(module.hadamard_quantize_multiply, bm=128, bk=128, bn=128, sm_global=2, hadamard_power=7)
    arrays = (normal("x", 256, 256), *_scaled(256, "y", (2, 2)), jnp.asarray([1, 2], jnp.uint32))
    return Call(function=kernel, arrays=arrays)


def _states(*, backward: bool) -> Call:
    module = _module(TOPS + "common/chunk_h.py")
    shape = (1, 256, 2, 128)
    wide = partial(normal, dtype=jnp.float32)
    gates = -jnp.abs(wide("g", *shape, scale=0.02))
    if backward:
        kernel = partial(module.chunk_bwd_dh_kernel, chunk_size=64, scale=0.1)

        def reversed_states(q: Any, gk: Any, do: Any) -> Any:
            return kernel(q, q, do, gk=gk, do=do)[0]

        return Call(function=reversed_states, arrays=(wide("q", *shape), gates, wide("do", *shape)))

    def states(k: Any, v: Any, gk: Any) -> Any:
        return module.chunk_fwd_h_kernel(k, v, gk=gk, chunk_size=64)[0]

    def reference(k: Any, v: Any, gk: Any) -> Any:
        return module.chunk_fwd_h_ref(k, v, gk=gk, chunk_size=64)[0][0]

    return Call(function=states, arrays=(normal("k", *shape), normal("v", *shape), gates), reference=reference)


@case("pallas-kernel/states of linear attention", path=TOPS + "common/chunk_h.py")
def _() -> Call:
    return _states(backward=False)


@case("pallas-kernel/states of linear attention, backward", path=TOPS + "common/chunk_h.py")
def _() -> Call:
    return _states(backward=True)


@case("pallas-kernel/gated linear attention, recurrent", path=TOPS + "gla/fused_recurrent.py")
def _() -> Call:
    module = _module(TOPS + "gla/fused_recurrent.py")
    shape = (1, 64, 2, 128)
    arrays = tuple(normal(name, *shape, dtype=jnp.float32) for name in "qkv")
    gates = -jnp.abs(normal("g", *shape, dtype=jnp.float32, scale=0.1))

    def kernel(q: Any, k: Any, v: Any, gk: Any) -> Any:
        return module.fused_recurrent_gla_fwd(q, k, v, gk=gk)[0]

    def reference(q: Any, k: Any, v: Any, gk: Any) -> Any:
        def step(state: Any, now: Any) -> Any:
            q, k, v, g = now
            state = state * jnp.exp(g)[..., None] + k[..., None] * v[..., None, :]
            return state, jnp.einsum("bhk,bhkv->bhv", q * 128**-0.5, state)

        start = jnp.zeros((1, 2, 128, 128))
        return jax.lax.scan(step, start, [one.swapaxes(0, 1) for one in (q, k, v, gk)])[1].swapaxes(0, 1)

    return Call(function=kernel, arrays=(*arrays, gates), reference=reference)


@case("pallas-kernel/gated linear attention, outputs", path=TOPS + "gla/chunk.py")
def _() -> Call:
    module = _module(TOPS + "gla/chunk.py")
    shape = (1, 256, 2, 128)
    arrays = (
        normal("q", *shape, dtype=jnp.float32), normal("v", *shape, dtype=jnp.float32),
        -jnp.abs(normal("g", *shape, dtype=jnp.float32, scale=0.1)), normal("A", 1, 256, 2, 64, dtype=jnp.float32),
        normal("h", 1, 4, 2, 128, 128, dtype=jnp.float32),
    )  # fmt: skip
    kernel = partial(module.chunk_gla_fwd_o_gk_pl, scale=0.1, chunk_size=64, use_exp2=False)
    return Call(function=kernel, arrays=arrays)
