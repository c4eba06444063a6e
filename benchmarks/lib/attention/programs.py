"""Recipes -> JAX programs: attention as each of those compared offers it, from public operands to output.

A recipe is a plain dictionary, so that it can travel to a child process and be the key of what is stored:
``{"impl": "splash", "shape": {...}, "grad": false, "config": {...}}``.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.lib.sources import ROOT, names_of

Recipe = dict[str, Any]
Attention = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def avals_of(recipe: Recipe) -> list[jax.ShapeDtypeStruct]:
    """q, k, v as [batch, heads, seq, dim], and the output's cotangent for a recipe with gradients."""
    s = recipe["shape"]
    dim_v = s.get("dim_v") or s["dim"]
    of_each = (("heads", s["dim"]), ("kv_heads", s["dim"]), ("kv_heads", dim_v), ("heads", dim_v))
    return [
        jax.ShapeDtypeStruct((s["batch"], s[heads], s["seq"], dim), jnp.bfloat16)
        for heads, dim in of_each[: 4 if recipe["grad"] else 3]
    ]


def build(recipe: Recipe) -> tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]:
    """The program and its operands: attention alone, or with ``grad`` the output and the gradients of q, k, v."""
    attend = IMPLEMENTATIONS[recipe["impl"]](recipe["shape"], recipe["config"])
    if not recipe["grad"]:
        return attend, avals_of(recipe)

    def both(q: jax.Array, k: jax.Array, v: jax.Array, do: jax.Array) -> Any:
        out, pull = jax.vjp(attend, q, k, v)
        return out, *pull(do)

    return both, avals_of(recipe)


def attends(shape: Recipe, q: Any, k: Any) -> Any:
    """Which pairs attend, of query positions ``q`` and key positions ``k``: arrays of JAX's or numpy's."""
    pairs = k <= q if shape["causal"] else (k <= q) | (k > q)
    if shape.get("window"):
        pairs = pairs & (q - k < shape["window"])
    length = shape["seq"] // shape.get("documents", 1)
    pairs = pairs & (q // length == k // length)
    return pairs | (k < shape["prefix"]) if shape.get("prefix") else pairs


def document_ids(shape: Recipe) -> jax.Array | None:
    """int32[batch, length]: the document of every position, a constant of the program; None where there is one."""
    count = shape.get("documents", 1)
    ids = np.repeat(np.arange(count, dtype=np.int32), shape["seq"] // count)
    return jnp.broadcast_to(jnp.asarray(ids), (shape["batch"], shape["seq"])) if count > 1 else None


def sinks_of(shape: Recipe) -> jax.Array | None:
    """float32[heads], a constant of the program; None where there are none."""
    return jnp.linspace(-1, 1, shape["heads"], dtype=jnp.float32) if shape.get("sinks") else None


def ours(shape: Recipe, config: Recipe) -> Attention:
    """The operator of this project."""
    from pallas_flash import BackwardBlocks, Config, ForwardBlocks, attention

    blocks = Config(
        forward=ForwardBlocks(**config["forward"]) if "forward" in config else None,
        backward=BackwardBlocks(**config["backward"]) if "backward" in config else None,
        table_tile=config.get("table_tile"),
    )
    pattern: dict[str, Any] = {"causal": shape["causal"]}
    if shape.get("window"):
        pattern["window"] = (shape["window"] - 1, 0)
    if shape.get("prefix"):
        pattern = {"mask": functools.partial(attends, shape)}
    if shape.get("softcap"):
        pattern["softcap"] = shape["softcap"]

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return attention(q, k, v, **pattern, segment_ids=document_ids(shape), sinks=sinks_of(shape), config=blocks)

    return attend


def kernel(_shape: Recipe, _config: Recipe) -> Attention:
    """``kernel.py`` as it is: one head, one shape."""
    kernel_fn = names_of((ROOT / "kernel.py").read_text())["kernel_fn"]
    return lambda q, k, v: kernel_fn(q[0, 0], k[0, 0], v[0, 0])[None, None]


def flash(shape: Recipe, config: Recipe) -> Attention:
    """jax's ``flash_attention``; it has no grouped heads, so that keys are repeated."""
    from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, SegmentIds, flash_attention

    q, k_major, k = (min(config[name], shape["seq"]) for name in ("q", "k_major", "k"))
    sizes = BlockSizes(
        block_q=q, block_k_major=k_major, block_k=k, block_b=1,
        block_q_major_dkv=q, block_k_major_dkv=k_major, block_q_dkv=q, block_k_dkv=k,
        block_q_dq=q, block_k_major_dq=k_major, block_k_dq=k,
    )  # fmt: skip
    group = shape["heads"] // shape["kv_heads"]

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        k, v = (jnp.repeat(x, group, axis=1) if group > 1 else x for x in (k, v))
        ids = document_ids(shape)
        return flash_attention(
            q, k, v, segment_ids=None if ids is None else SegmentIds(q=ids, kv=ids), causal=shape["causal"],
            sm_scale=shape["dim"] ** -0.5, block_sizes=sizes,
        )  # fmt: skip

    return attend


def _splash_blocks(shape: Recipe, config: Recipe) -> Recipe:
    names = ("block_q", "block_kv", "block_kv_compute", "block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute")
    sizes = {name: min(config.get(name, 1024), shape["seq"]) for name in names}
    if config.get("fused", True):
        return {**sizes, "use_fused_bwd_kernel": True}
    return {**sizes, "block_q_dq": sizes["block_q_dkv"], "block_kv_dq": sizes["block_kv_dkv"]}


def _splash(kernel: Any, shape: Recipe, segment_ids: Any) -> Attention:
    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        scaled, ids, sinks = (q * shape["dim"] ** -0.5).astype(q.dtype), document_ids(shape), sinks_of(shape)
        attend_one = kernel if sinks is None else functools.partial(kernel, sinks=sinks)
        if ids is None:
            return jax.vmap(attend_one)(scaled, k, v)
        return jax.vmap(attend_one)(scaled, k, v, segment_ids(q=ids, kv=ids))

    return attend


def _mask(masks: Any, shape: Recipe) -> Any:
    """As jax's or tokamax's masks say it: by a rule where they have one, else as an array."""
    size = (shape["seq"], shape["seq"])
    if shape.get("prefix"):
        at = np.arange(shape["seq"])
        return masks.NumpyMask(attends({**shape, "documents": 1}, at[:, None], at[None, :]))
    if shape.get("window"):
        return masks.LocalMask(size, (shape["window"] - 1, 0), 0)
    return masks.CausalMask(size) if shape["causal"] else masks.FullMask(size)


def splash(shape: Recipe, config: Recipe) -> Attention:
    """jax's ``splash_attention``, which leaves the scaling of the queries to its caller."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as library
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    made = library.make_splash_mha(
        masks.MultiHeadMask([_mask(masks, shape)] * shape["heads"]),
        head_shards=1,
        q_seq_shards=1,
        block_sizes=library.BlockSizes(**_splash_blocks(shape, config)),
        attn_logits_soft_cap=shape.get("softcap") or None,
    )
    return _splash(made, shape, library.SegmentIds)


def tokamax(shape: Recipe, config: Recipe) -> Attention:
    """tokamax's splash attention, which its attention for the TPU is made of."""
    folder = "tokamax._src.ops.experimental.tpu.splash_attention"
    library = importlib.import_module(f"{folder}.splash_attention_kernel")
    masks = importlib.import_module(f"{folder}.splash_attention_mask")
    layouts = dict(zip(("q_layout", "k_layout", "v_layout"), config.get("layouts", ()), strict=False))
    settings = library.SplashConfig(
        **_splash_blocks(shape, config),
        use_base2_exp=True,
        attn_logits_soft_cap=shape.get("softcap") or None,
        use_experimental_scheduler=config.get("scheduler", False),
        dq_reduction_steps=config.get("dq_reduction_steps"),
        **{name: library.QKVLayout(layout) for name, layout in layouts.items()},
    )
    made = library.make_splash_mha(_mask(masks, shape), config=settings, q_seq_shards=1)
    return _splash(made, shape, library.SegmentIds)


def xla(shape: Recipe, _config: Recipe) -> Attention:
    """Plain XLA, with all scores in memory."""
    group = shape["heads"] // shape["kv_heads"]

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        batch, heads, seq, dim = q.shape
        grouped = q.reshape(batch, heads // group, group, seq, dim)
        scores = jnp.einsum("bhgqd,bhkd->bhgqk", grouped, k, preferred_element_type=jnp.float32) * dim**-0.5
        if cap := shape.get("softcap"):
            scores = cap * jnp.tanh(scores / cap)
        if shape["causal"]:
            rows, columns = (jax.lax.broadcasted_iota(jnp.int32, scores.shape, axis) for axis in (3, 4))
            scores = jnp.where(attends(shape, rows, columns), scores, -jnp.inf)
        sinks = sinks_of(shape)
        if sinks is not None:
            beside = jnp.broadcast_to(sinks.reshape(-1, group, 1, 1), (*scores.shape[:-1], 1))
            scores = jnp.concatenate([scores, beside], axis=-1)
        weights = jax.nn.softmax(scores, axis=-1)[..., : k.shape[2]].astype(v.dtype)
        out = jnp.einsum("bhgqk,bhkd->bhgqd", weights, v, preferred_element_type=jnp.float32)
        return out.reshape(*q.shape[:3], v.shape[3]).astype(q.dtype)

    return attend


IMPLEMENTATIONS: dict[str, Callable[[Recipe, Recipe], Attention]] = {
    "kernel.py": kernel,
    **{made.__name__: made for made in (ours, flash, splash, tokamax, xla)},
}
