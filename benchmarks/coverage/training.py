"""Kernels of openxla/tokamax, AI-Hypercomputer/maxtext, apple/axlearn, google/qwix and sdh1014/pallas-kernel."""

from __future__ import annotations

import itertools
from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.coverage.calls import (
    F32,
    Call,
    attend,
    case,
    causal,
    enter,
    gradient,
    grouped,
    grouped_outer,
    integers,
    ints,
    normal,
)
from benchmarks.coverage.jax_ops import GROUPS

TOKAMAX = "tokamax/_src/ops/"
MAXTEXT = "src/maxtext/kernels/"
QWIX = "qwix/contrib/kernels/"
TOPS = "tops/ops/"


def _heads(mask: np.ndarray, cap: float | None = None) -> Any:
    """Attention of ``[heads, tokens, 128]`` in float32, without a scale; keys and values of fewer heads, or of one."""

    def reference(q: Any, k: Any, v: Any) -> Any:
        k, v = (one.reshape(-1, *one.shape[-2:]) for one in (k, v))
        return attend(q.swapaxes(0, 1), k, v, mask, cap=cap).swapaxes(0, 1).astype(q.dtype)

    return reference


def _splash(module: Any, kind: str = "causal", *, key_heads: int = 2, backward: bool = False, **options: Any) -> Call:
    masks = import_module(module.__name__.replace("_kernel", "_mask"))
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
    kernel = make(mask, config=config)
    q = normal("q", 4, size, 128, scale=0.1)
    k, v = (normal(name, *((key_heads,) if key_heads > 1 else ()), size, 128, scale=0.3) for name in "kv")
    reference = _heads(dense, options.get("attn_logits_soft_cap"))
    if not backward:
        return Call(function=kernel, arrays=(q, k, v), reference=reference)
    return Call(function=gradient(kernel), arrays=(q, k, v), reference=gradient(reference), tolerance=0.04)


enter(
    TOKAMAX + "experimental/tpu/splash_attention/splash_attention_kernel.py",
    {
        "tokamax/splash attention, causal": _splash,
        "tokamax/splash attention, window": partial(_splash, kind="window"),
        "tokamax/splash attention, multi-query, soft cap": partial(
            _splash, kind="full", key_heads=1, attn_logits_soft_cap=10.0
        ),
        "tokamax/splash attention, diagonal skipped": partial(_splash, qk_diag_skip=True),
        "tokamax/splash attention, backward": partial(_splash, backward=True),
    },
)


def _products(lhs: Any, rhs: Any, *_: Any) -> Any:
    return grouped(lhs.astype(F32), rhs.astype(F32), GROUPS).astype(jnp.bfloat16)


def _outer(lhs: Any, rhs: Any, *_: Any) -> Any:
    return grouped_outer(lhs.T, rhs, GROUPS).astype(jnp.bfloat16)


def _ragged_dot(module: Any, activation: Any = None) -> Call:
    how = {"precision": jax.lax.Precision.DEFAULT, "out_dtype": jnp.bfloat16, "tiling": (128, 128, 128)}
    how |= {"activation": activation} if activation else {}

    def reference(lhs: Any, rhs: Any, _sizes: Any) -> Any:
        products = grouped(lhs.astype(F32), rhs.astype(F32), GROUPS)
        return (activation(products) if activation else products).astype(jnp.bfloat16)

    arrays = normal("lhs", 256, 256), normal("rhs", 4, 256, 256), ints(*GROUPS)
    return Call(function=partial(module.gmm, **how), arrays=arrays, reference=reference)


def _ragged_dot_of_weights(module: Any) -> Call:
    how = {"precision": jax.lax.Precision.DEFAULT, "out_dtype": jnp.bfloat16, "tiling": (128, 128, 128)}
    arrays = normal("lhs", 256, 256), normal("rhs", 256, 256), ints(*GROUPS)
    return Call(function=lambda lhs, rhs, sizes: module.tgmm(lhs.T, rhs, sizes, **how), arrays=arrays, reference=_outer)


enter(
    TOKAMAX + "ragged_dot/pallas_mosaic_tpu_kernel.py",
    {
        "tokamax/ragged dot": _ragged_dot,
        "tokamax/ragged dot, activation": partial(_ragged_dot, activation=jax.nn.relu),
        "tokamax/ragged dot, of weights": _ragged_dot_of_weights,
    },
)


def _loss(module: Any, *, backward: bool) -> Call:
    how = {"reduction": "sum", "b_block_size": 128, "h_block_size": 128, "v_block_size": 256}
    x, w = normal("x", 256, 256, dtype=F32), normal("w", 256, 512, dtype=F32, scale=0.1)
    labels = integers("labels", 0, 512, 256)

    def loss(x: Any, labels: Any, w: Any) -> Any:
        logits = x @ w
        sums = jax.nn.logsumexp(logits, axis=1)
        return jnp.sum(sums - jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]), sums

    def gradients(_dout: Any, _lse: Any, x: Any, labels: Any, w: Any) -> Any:
        return jax.grad(lambda x, w: loss(x, labels, w)[0], argnums=(0, 1))(x, w)

    if not backward:
        kernel = partial(module.linear_softmax_cross_entropy_loss_fwd_pallas_mosaic_tpu, **how)
        return Call(function=kernel, arrays=(x, labels, w), reference=loss)
    kernel = partial(module.linear_softmax_cross_entropy_loss_bwd_pallas_mosaic_tpu, **how)
    arrays = (jnp.float32(1), jax.nn.logsumexp(x @ w, axis=1), x, labels, w)
    return Call(function=kernel, arrays=arrays, reference=gradients)


enter(
    TOKAMAX + "linear_softmax_cross_entropy_loss/pallas_mosaic_tpu_kernel.py",
    {
        "tokamax/cross-entropy of a linear layer": partial(_loss, backward=False),
        "tokamax/cross-entropy of a linear layer, backward": partial(_loss, backward=True),
    },
)


@case("tokamax/grouped matmul v2, of weights", path=TOKAMAX + "experimental/gmm_v2/tgmm_v2.py")
def _(module: Any) -> Call:
    how = {"num_actual_groups": 4, "vmem_limit_bytes": 64 << 20, "preferred_element_type": jnp.bfloat16}
    arrays = normal("lhs", 256, 256), normal("rhs", 256, 256), ints(*GROUPS)
    return Call(function=partial(module.tgmm_v2, **how), arrays=arrays, reference=_outer)


def _ragged(module: Any, name: str, queries: tuple[int, ...], keys: tuple[int, ...]) -> Call:
    q = normal("q", *queries, dtype=F32, scale=0.1)
    k, v = (normal(n, *keys, dtype=F32) for n in "kv")

    def kernel(*arrays: Any) -> Any:
        out, _, denominator = getattr(module, f"ragged_{name}")(*arrays, block_size=128)
        return out if name == "mqa" else out / denominator

    def reference(q: Any, k: Any, v: Any, lengths: Any) -> Any:
        if name == "gqa":
            return module.reference_gqa(q[:, 0], k.swapaxes(1, 2), v.swapaxes(1, 2), lengths)[0]
        return getattr(module, f"reference_{name}")(q, k, v, lengths)[0]

    return Call(function=kernel, arrays=(q, k, v, ints(100, 200)), reference=reference)


def _streams(_module: Any, *, backward: bool) -> Call:
    common, forward = (import_module(f"maxtext.kernels.mhc.{name}") for name in ("common", "mhc_kernels_fwd"))
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

    function = gradient(kernel, (0,)) if backward else kernel
    return Call(function=function, arrays=(normal("x", batch, tokens, streams, width),))


enter(
    MAXTEXT + "attention/ragged_attention.py",
    {
        "maxtext/ragged attention, multi-query": partial(_ragged, name="mqa", queries=(2, 8, 128), keys=(2, 256, 128)),
        "maxtext/ragged attention, multi-head": partial(
            _ragged, name="mha", queries=(2, 1, 4, 128), keys=(2, 256, 4, 128)
        ),
        "maxtext/ragged attention, grouped-query": partial(
            _ragged, name="gqa", queries=(2, 1, 8, 128), keys=(2, 256, 2, 128)
        ),
    },
)
enter(MAXTEXT + "mhc/mhc_kernels_fwd.py", {"maxtext/hyper-connections": partial(_streams, backward=False)})
enter(MAXTEXT + "mhc/mhc_kernels_bwd.py", {"maxtext/hyper-connections, backward": partial(_streams, backward=True)})


@case("maxtext/grouped matmul v2", path=MAXTEXT + "megablox/pallas_mosaic_tpu_v2_gmm_kernel.py")
def _(module: Any) -> Call:
    kernel = partial(module.gmm_v2, vmem_limit_bytes=64 << 20, preferred_element_type=jnp.bfloat16)
    arrays = normal("lhs", 256, 256), normal("rhs", 4, 256, 256), ints(*GROUPS)
    return Call(function=kernel, arrays=arrays, reference=_products)


@case("maxtext/splash attention, its own", path=MAXTEXT + "attention/splash_attention_kernel.py")
def _(module: Any) -> Call:
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    sizes = module.BlockSizes(block_q=128, block_kv=128, block_kv_compute=128)
    mask = masks.MultiHeadMask([masks.CausalMask((256, 256)) for _ in range(2)])
    splash = module.make_splash_mha_single_device(mask, block_sizes=sizes)
    arrays = tuple(normal(name, 2, 256, 128, scale=0.3) for name in "qkv")
    return Call(function=splash, arrays=arrays, reference=_heads(causal(256, 256)))


def _log_probs(module: Any, *, top: int) -> Call:
    def kernel(x: Any, w: Any) -> Any:  # ids of nearly equal logits depend on rounding
        made = module.online_softmax_log_probs_pallas(x, w, top_k=top, tile_s=128, tile_v=256)
        return made[:2] if top else made

    def reference(x: Any, w: Any) -> Any:
        logits = jnp.einsum("bsh,vh->bsv", x, w)
        sums = jax.nn.logsumexp(logits, axis=-1)
        return (sums, jax.lax.top_k(logits, top)[0]) if top else sums

    arrays = normal("x", 2, 128, 128, dtype=F32, scale=0.1), normal("w", 512, 128, dtype=F32)
    return Call(function=kernel, arrays=arrays, reference=reference)


enter(
    "axlearn/common/kernels/online_softmax_log_probs.py",
    {
        "axlearn/log normaliser": partial(_log_probs, top=0),
        "axlearn/log normaliser and top k": partial(_log_probs, top=4),
    },
)


def _scaled(name: str) -> Any:
    """A square of int8, and the scale of each quarter."""
    return integers(name, -120, 120, 256, 256, dtype=jnp.int8), jnp.abs(normal(name + " scale", 2, 2, dtype=F32))


def _unscaled(values: Any, scales: Any) -> Any:
    return values.astype(F32) * jnp.repeat(jnp.repeat(scales, 128, 0), 128, 1)


@case("qwix/quantised matmul", path=QWIX + "quantized_matmul.py")
def _(module: Any) -> Call:
    kernel = partial(module.quantized_matmul, bm=128, bk=128, bn=128, dtype=F32)
    arrays = (*_scaled("x"), *_scaled("y"))
    return Call(function=kernel, arrays=arrays, reference=lambda x, sx, y, sy: _unscaled(x, sx) @ _unscaled(y, sy))


@case("qwix/matmul that quantises", path=QWIX + "lhs_fused_quantized_matmul.py")
def _(module: Any) -> Call:
    kernel = partial(module.lhs_fused_quantized_matmul, bm=128, bk=128, bn=128, sm=2)
    arrays = (normal("x", 256, 256, dtype=F32), *_scaled("y"))
    return Call(function=kernel, arrays=arrays, reference=lambda x, y, sy: x @ _unscaled(y, sy), tolerance=0.03)


@case("qwix/Hadamard transform that quantises", path=QWIX + "fused_hadamard_quantize.py")
def _(module: Any) -> Call:
    kernel = partial(module.fused_hadamard_quantize, bm=128, bn=128, sm=2, sn=2, hadamard_power=7)
    return Call(function=kernel, arrays=(normal("x", 256, 256, dtype=F32),))


@case("qwix/Hadamard matmul that quantises", path=QWIX + "fused_hadamard_quantized_matmul.py")
def _(module: Any) -> Call:
    kernel = partial(module.hadamard_quantize_multiply, bm=128, bk=128, bn=128, sm_global=2, hadamard_power=7)
    return Call(function=kernel, arrays=(normal("x", 256, 256), *_scaled("y"), jnp.asarray([1, 2], jnp.uint32)))


def _states(module: Any, *, backward: bool) -> Call:
    shape = (1, 256, 2, 128)
    gates = -jnp.abs(normal("g", *shape, dtype=F32, scale=0.02))
    if backward:
        kernel = partial(module.chunk_bwd_dh_kernel, chunk_size=64, scale=0.1)
        arrays = normal("q", *shape, dtype=F32), gates, normal("do", *shape, dtype=F32)
        return Call(function=lambda q, gk, do: kernel(q, q, do, gk=gk, do=do)[0], arrays=arrays)

    def states(k: Any, v: Any, gk: Any) -> Any:
        return module.chunk_fwd_h_kernel(k, v, gk=gk, chunk_size=64)[0]

    def reference(k: Any, v: Any, gk: Any) -> Any:
        return module.chunk_fwd_h_ref(k, v, gk=gk, chunk_size=64)[0][0]

    return Call(function=states, arrays=(normal("k", *shape), normal("v", *shape), gates), reference=reference)


enter(
    TOPS + "common/chunk_h.py",
    {
        "pallas-kernel/states of linear attention": partial(_states, backward=False),
        "pallas-kernel/states of linear attention, backward": partial(_states, backward=True),
    },
)


@case("pallas-kernel/gated linear attention, recurrent", path=TOPS + "gla/fused_recurrent.py")
def _(module: Any) -> Call:
    shape = (1, 64, 2, 128)
    gates = -jnp.abs(normal("g", *shape, dtype=F32, scale=0.1))

    def kernel(q: Any, k: Any, v: Any, gk: Any) -> Any:
        return module.fused_recurrent_gla_fwd(q, k, v, gk=gk)[0]

    def reference(q: Any, k: Any, v: Any, gk: Any) -> Any:
        def step(state: Any, now: Any) -> Any:
            q, k, v, g = now
            state = state * jnp.exp(g)[..., None] + k[..., None] * v[..., None, :]
            return state, jnp.einsum("bhk,bhkv->bhv", q * 128**-0.5, state)

        start = jnp.zeros((1, 2, 128, 128))
        return jax.lax.scan(step, start, [one.swapaxes(0, 1) for one in (q, k, v, gk)])[1].swapaxes(0, 1)

    arrays = (*(normal(name, *shape, dtype=F32) for name in "qkv"), gates)
    return Call(function=kernel, arrays=arrays, reference=reference)


@case("pallas-kernel/gated linear attention, outputs", path=TOPS + "gla/chunk.py")
def _(module: Any) -> Call:
    shape = (1, 256, 2, 128)
    arrays = (
        normal("q", *shape, dtype=F32),
        normal("v", *shape, dtype=F32),
        -jnp.abs(normal("g", *shape, dtype=F32, scale=0.1)),
        normal("A", 1, 256, 2, 64, dtype=F32),
        normal("h", 1, 4, 2, 128, 128, dtype=F32),
    )
    kernel = partial(module.chunk_gla_fwd_o_gk_pl, scale=0.1, chunk_size=64, use_exp2=False)
    return Call(function=kernel, arrays=arrays)
