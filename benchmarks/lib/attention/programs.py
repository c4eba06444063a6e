"""Recipes -> JAX programs: attention as each of those compared offers it, from public operands to output.

A recipe is a plain dictionary, so that it can travel to a child process and be the key of what is stored:
``{"impl": "splash", "shape": {...}, "grad": false, "config": {...}}``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.lib.sources import ROOT, names_of

Recipe = dict[str, Any]
Attention = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def avals_of(recipe: Recipe) -> list[jax.ShapeDtypeStruct]:
    """q, k, v as [batch, heads, seq, dim], and the output's cotangent for a recipe with gradients."""
    s = recipe["shape"]
    q, kv = ((s["batch"], heads, s["seq"], s["dim"]) for heads in (s["heads"], s["kv_heads"]))
    shapes = (q, kv, kv, q) if recipe["grad"] else (q, kv, kv)
    return [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]


def build(recipe: Recipe) -> tuple[Callable[..., Any], list[jax.ShapeDtypeStruct]]:
    """The program and its operands: attention alone, or with ``grad`` the output and the gradients of q, k, v."""
    attend = IMPLEMENTATIONS[recipe["impl"]](recipe["shape"], recipe["config"], recipe["grad"])
    if not recipe["grad"]:
        return attend, avals_of(recipe)

    def both(q: jax.Array, k: jax.Array, v: jax.Array, do: jax.Array) -> Any:
        out, pull = jax.vjp(attend, q, k, v)
        return out, *pull(do)

    return both, avals_of(recipe)


def ours(shape: Recipe, config: Recipe, _grad: bool) -> Attention:
    """The operator of this project."""
    from pallas_flash import BackwardBlocks, Config, ForwardBlocks, attention

    blocks = Config(
        forward=ForwardBlocks(**config["forward"]) if "forward" in config else None,
        backward=BackwardBlocks(**config["backward"]) if "backward" in config else None,
    )
    return lambda q, k, v: attention(q, k, v, causal=shape["causal"], config=blocks)


def kernel(_shape: Recipe, _config: Recipe, _grad: bool) -> Attention:
    """``kernel.py`` as it is: one head, one shape."""
    kernel_fn = names_of((ROOT / "kernel.py").read_text())["kernel_fn"]
    return lambda q, k, v: kernel_fn(q[0, 0], k[0, 0], v[0, 0])[None, None]


def flash(shape: Recipe, config: Recipe, _grad: bool) -> Attention:
    """jax's ``flash_attention``; it has no grouped heads, so that keys are repeated."""
    from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, flash_attention

    q, k_major, k = (min(config[name], shape["seq"]) for name in ("q", "k_major", "k"))
    sizes = BlockSizes(
        block_q=q, block_k_major=k_major, block_k=k, block_b=1,
        block_q_major_dkv=q, block_k_major_dkv=k_major, block_q_dkv=q, block_k_dkv=k,
        block_q_dq=q, block_k_major_dq=k_major, block_k_dq=k,
    )  # fmt: skip
    group = shape["heads"] // shape["kv_heads"]

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        k, v = (jnp.repeat(x, group, axis=1) if group > 1 else x for x in (k, v))
        return flash_attention(q, k, v, causal=shape["causal"], sm_scale=shape["dim"] ** -0.5, block_sizes=sizes)

    return attend


def _splash_blocks(shape: Recipe, config: Recipe) -> Recipe:
    names = ("block_q", "block_kv", "block_kv_compute", "block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute")
    sizes = {name: min(config.get(name, 1024), shape["seq"]) for name in names}
    if config.get("fused", True):
        return {**sizes, "use_fused_bwd_kernel": True}
    return {**sizes, "block_q_dq": sizes["block_q_dkv"], "block_kv_dq": sizes["block_kv_dkv"]}


def _splash(kernel: Any, shape: Recipe) -> Attention:
    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jax.vmap(kernel)((q * shape["dim"] ** -0.5).astype(q.dtype), k, v)

    return attend


def splash(shape: Recipe, config: Recipe, _grad: bool) -> Attention:
    """jax's ``splash_attention``, which leaves the scaling of the queries to its caller."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as library
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    size = (shape["seq"], shape["seq"])
    mask = masks.CausalMask(size) if shape["causal"] else masks.FullMask(size)
    made = library.make_splash_mha(
        masks.MultiHeadMask([mask] * shape["heads"]),
        head_shards=1,
        q_seq_shards=1,
        block_sizes=library.BlockSizes(**_splash_blocks(shape, config)),
    )
    return _splash(made, shape)


def tokamax(shape: Recipe, config: Recipe, _grad: bool) -> Attention:
    """tokamax's splash attention, which its attention for the TPU is made of."""
    folder = "tokamax._src.ops.experimental.tpu.splash_attention"
    library = importlib.import_module(f"{folder}.splash_attention_kernel")
    masks = importlib.import_module(f"{folder}.splash_attention_mask")
    size = (shape["seq"], shape["seq"])
    settings = library.SplashConfig(
        **_splash_blocks(shape, config),
        use_base2_exp=True,
        use_experimental_scheduler=config.get("scheduler", False),
        dq_reduction_steps=config.get("dq_reduction_steps"),
    )
    mask = masks.CausalMask(size) if shape["causal"] else masks.FullMask(size)
    return _splash(library.make_splash_mha(mask, config=settings, q_seq_shards=1), shape)


def xla(shape: Recipe, _config: Recipe, _grad: bool) -> Attention:
    """Plain XLA, with all scores in memory."""
    group = shape["heads"] // shape["kv_heads"]

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        batch, heads, seq, dim = q.shape
        grouped = q.reshape(batch, heads // group, group, seq, dim)
        scores = jnp.einsum("bhgqd,bhkd->bhgqk", grouped, k, preferred_element_type=jnp.float32) * dim**-0.5
        if shape["causal"]:
            rows = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 3)
            scores = jnp.where(jax.lax.broadcasted_iota(jnp.int32, scores.shape, 4) <= rows, scores, -jnp.inf)
        weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
        out = jnp.einsum("bhgqk,bhkd->bhgqd", weights, v, preferred_element_type=jnp.float32)
        return out.reshape(q.shape).astype(q.dtype)

    return attend


IMPLEMENTATIONS: dict[str, Callable[[Recipe, Recipe, bool], Attention]] = {
    "ours": ours,
    "kernel.py": kernel,
    "flash": flash,
    "splash": splash,
    "tokamax": tokamax,
    "xla": xla,
}
