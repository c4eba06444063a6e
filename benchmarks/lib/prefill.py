"""Prefill, modelled: causal attention of one layer over a whole prompt, ours on one chip and four, and peers on one.

Ours is ``pallas_flash.attention`` with the blocks that it chooses. On four chips the heads are shared out and the
output stays so, which is how the next matrix product wants it; ``all-gather ms`` is what it would cost more to have all
of it on every chip. Peers are given some of the block sizes that came out first in ``python -m benchmarks.attention``,
and ``settings`` names the one that was fastest. ``MFU %`` is over 197 TFLOP/s per chip and counts the pairs of query
and key that attend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.lib.attention.cases import FLASH, SPLASH
from benchmarks.lib.attention.cases import Shape as AttentionShape
from benchmarks.lib.attention.kept import attention_programs
from benchmarks.lib.cache import ProgramCache
from benchmarks.lib.models import Model
from benchmarks.lib.programs import modelled, of_function, struct
from pallas_flash import attention
from ratchet.exam.judge.workers import Workers
from ratchet.exam.problem import mesh as meshes
from ratchet.tpu.chips import V5E
from ratchet.values import ArraySpec, Mesh

import jax  # isort: skip (benchmarks.lib.programs decides for which platform)
import jax.numpy as jnp  # isort: skip
from jax.sharding import PartitionSpec as P  # isort: skip

CHIPS = 4
LONG = 65536
"""From here on peers get one setting: tracing splash's mask takes minutes."""
PEERS: dict[str, tuple[dict[str, Any], ...]] = {"flash": FLASH[:1], "splash": (SPLASH[0], SPLASH[2]), "xla": ({},)}


def shape_of(model: Model, context: int) -> AttentionShape:
    """One prompt of ``context`` tokens."""
    return AttentionShape(
        batch=1, heads=model.q_heads, kv_heads=model.kv_heads, seq=context, dim=model.head_dim, causal=True
    )


def _by_heads(shapes: list[tuple[int, ...]]) -> Mesh:
    specs = [ArraySpec(shape=shape, dtype="bfloat16") for shape in shapes]
    return meshes.read({"mesh": {"chip": CHIPS}, "input_shardings": [[None, "chip"]] * len(specs)}, specs)


def _ms(function: Callable[..., Any], shapes: list[tuple[int, ...]], chips: int, workers: Workers) -> float:
    """Latency of a function of arrays [batch, heads, length, dim], on one chip or with the heads on four."""
    avals = [struct(shape, jnp.bfloat16) for shape in shapes]
    artefact = of_function(function, avals, _by_heads(shapes) if chips > 1 else None)
    return modelled(artefact, workers).latency_ms


def ours_ms(model: Model, context: int, chips: int, workers: Workers) -> float:
    """``pallas_flash.attention`` of one layer."""
    heads = (model.q_heads, model.kv_heads, model.kv_heads)
    shapes = [(1, count, context, model.head_dim) for count in heads]

    def one(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        return attention(q, k, v, causal=True)

    def four(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        heads = P(None, "chip")
        return jax.shard_map(one, in_specs=(heads,) * 3, out_specs=heads, check_vma=False)(q, k, v)

    return _ms(one if chips == 1 else four, shapes, chips, workers)


def gather_ms(model: Model, context: int, workers: Workers) -> float:
    """XLA's all-gather of the output [1, heads, context, dim] from its share of the heads, as a program of its own."""

    def whole(o: jax.Array) -> Any:
        gather = lambda own: jax.lax.all_gather(own, "chip", axis=1, tiled=True)  # noqa: E731
        return jax.shard_map(gather, in_specs=P(None, "chip"), out_specs=P(), check_vma=False)(o)

    return _ms(whole, [(1, model.q_heads, context, model.head_dim)], CHIPS, workers)


def peer(name: str, shape: AttentionShape, programs: ProgramCache) -> tuple[float | None, str]:
    """Latency of the fastest of a peer's settings, and which; None and why not if none compiles."""
    tried = PEERS[name][: 1 if shape.seq >= LONG else None]
    known = list(zip(tried, programs.made([shape.program(name, config) for config in tried]), strict=True))
    timed = [(figures["ms"], config) for config, figures in known if "ms" in figures]
    if not timed:
        text = " ".join(known[0][1]["error"].split())
        return None, "more than HBM holds" if "memory on HBM" in text else text[:60]
    ms, config = min(timed, key=lambda one: one[0])
    sizes = ", ".join(str(value) for value in config.values() if isinstance(value, int))
    return ms, f"{sizes}: best of {len(tried)}" if sizes else ""


def rows_of(model: Model) -> list[dict[str, Any]]:
    """All programs at a model's context, with what they come to per second and per dollar."""
    context, measured = model.context, []
    with Workers(V5E, keep=False) as workers:
        for chips in (1, CHIPS):
            gathered = gather_ms(model, context, workers) if chips > 1 else None
            measured.append(("pallas_flash", chips, ours_ms(model, context, chips, workers), gathered, ""))
    programs = attention_programs()
    for name in PEERS:
        ms, settings = peer(name, shape_of(model, context), programs)
        measured.append((name if name == "xla" else f"jax {name}", 1, ms, None, settings))
    return [row(model, *one) for one in measured]


def row(
    model: Model, program: str, chips: int, ms: float | None, gather: float | None, settings: str
) -> dict[str, Any]:
    """One line of the table; without a latency all that follows from it is empty."""
    flops = shape_of(model, model.context).flops(grad=False)
    per_s = None if ms is None else model.context / (ms * model.layers) * 1e3
    return {
        "model": model.name,
        "context": model.context,
        "program": program,
        "chips": chips,
        "ms per layer": ms,
        "all-gather ms": gather,
        "MFU %": None if ms is None else 100 * flops / chips / V5E.peak_bf16_flops / ms * 1e3,
        "tokens/s": per_s,
        **model.per_dollar(per_s, chips),
        "settings": settings,
    }
