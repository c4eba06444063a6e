"""Attention of named models, modelled: prefill of a whole prompt and decoding of a token, per second and per dollar.

Ours is ``pallas_flash.attention`` with the blocks that it chooses, and ``examples/paged_decode.py``. For prefill on
four chips the heads are shared out and the output stays so, which is how the next matrix product wants it;
``all-gather ms`` is what it would cost more to have all of it on every chip. Peers are given some of the block sizes
that came out first in ``python -m benchmarks.attention`` and ``python -m benchmarks.decode``, and ``settings`` names
the one that was fastest. ``MFU %`` is over 197 TFLOP/s per chip and counts the pairs of query and key that attend.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.lib import decoding
from benchmarks.lib.attention.cases import FLASH, SPLASH, Shape, attention_programs
from benchmarks.lib.cache import ProgramCache
from benchmarks.lib.paged_peers import peers_of
from benchmarks.lib.programs import modelled, of_function, struct
from benchmarks.lib.sources import ROOT
from pallas_flash import attention
from ratchet.exam.judge.workers import Workers
from ratchet.exam.problem import mesh as meshes
from ratchet.tpu.chips import V5E
from ratchet.values import ArraySpec, Mesh

import jax  # isort: skip (benchmarks.lib.programs decides for which platform)
import jax.numpy as jnp  # isort: skip
from jax.sharding import PartitionSpec as P  # isort: skip

Rows = list[dict[str, Any]]
DATA = ROOT / "benchmarks" / "data"
PRICES: Rows = json.loads((DATA / "prices.json").read_text())["prices"]
CHIPS = 4
LONG = 65536
"""From here on peers get one setting: tracing splash's mask takes minutes."""
PEERS: dict[str, tuple[dict[str, Any], ...]] = {"flash": FLASH[:1], "splash": (SPLASH[0], SPLASH[2]), "xla": ({},)}
PAGE = 64
PEER_KEYS = (512, 2048)
"""Blocks of keys that came out first in ``python -m benchmarks.decode``."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """What attention needs to know of a model."""

    name: str
    layers: int
    q_heads: int
    kv_heads: int
    head_dim: int
    context: int

    @property
    def long(self) -> bool:
        """The long-context case: another's shapes at a context of its own."""
        return "long context" in self.name

    def prompt(self, context: int) -> Shape:
        """One layer's problem of prefill: one prompt of ``context`` tokens."""
        heads = {"heads": self.q_heads, "kv_heads": self.kv_heads, "dim": self.head_dim}
        return Shape(batch=1, seq=context, causal=True, **heads)

    def token(self, context: int, batch: int, chips: int) -> decoding.Shape:
        """One layer's problem of decoding."""
        heads = {"q_heads": self.q_heads, "kv_heads": self.kv_heads, "head_dim": self.head_dim}
        page = min(PAGE, context // chips)
        return decoding.Shape(name=self.name, batch=batch, context=context, page=page, **heads)


MODELS = tuple(Model(**one) for one in json.loads((DATA / "models.json").read_text())["models"])


def per_dollar(tokens_per_s: float | None, chips: int) -> dict[str, float | None]:
    """Millions of tokens that a dollar pays for, at each price."""
    return {
        f"Mtokens/$ {price['what']}": None
        if tokens_per_s is None
        else tokens_per_s * 3600 / (chips * price["dollars_per_chip_hour"]) / 1e6
        for price in PRICES
    }


# --- prefill ---


def _by_heads(shapes: list[tuple[int, ...]]) -> Mesh:
    specs = [ArraySpec(shape=shape, dtype="bfloat16") for shape in shapes]
    return meshes.read({"mesh": {"chip": CHIPS}, "input_shardings": [[None, "chip"]] * len(specs)}, specs)


def _ms(function: Callable[..., Any], shapes: list[tuple[int, ...]], chips: int, workers: Workers) -> float:
    """Latency of a function of arrays [batch, heads, length, dim], on one chip or with the heads on four."""
    avals = [struct(shape, jnp.bfloat16) for shape in shapes]
    artefact = of_function(function, avals, _by_heads(shapes) if chips > 1 else None)
    return modelled(artefact, workers).latency_ms


def prefill_ms(model: Model, context: int, chips: int, workers: Workers) -> float:
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


def peer(name: str, shape: Shape, programs: ProgramCache) -> tuple[float | None, str]:
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


def prefill_rows(model: Model) -> Rows:
    """All programs at a model's context, with what they come to per second and per dollar."""
    context, rows = model.context, []
    with Workers(V5E, keep=False) as workers:
        for chips in (1, CHIPS):
            gathered = gather_ms(model, context, workers) if chips > 1 else None
            ms = prefill_ms(model, context, chips, workers)
            rows.append(prefill_row(model, "pallas_flash", ms, chips=chips, gather=gathered))
    programs = attention_programs()
    for name in PEERS:
        ms, settings = peer(name, model.prompt(context), programs)
        rows.append(prefill_row(model, name if name == "xla" else f"jax {name}", ms, settings=settings))
    return rows


def prefill_row(
    model: Model, program: str, ms: float | None, *, chips: int = 1, gather: float | None = None, settings: str = ""
) -> dict[str, Any]:
    """One line of the table; without a latency all that follows from it is empty."""
    flops = model.prompt(model.context).flops(grad=False)
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
        **per_dollar(per_s, chips),
        "settings": settings,
    }


# --- decoding ---


def decode_rows(model: Model) -> Rows:
    """A model at its context, a batch of 1 and of 8: ours on four chips and on one, peers on one."""
    rows = []
    with Workers(V5E, keep=False) as workers:
        for batch in (1, 8):
            shape = model.token(model.context, batch, CHIPS)
            timed = [decoding.row(shape, "paged_decode", decoding.ours(shape, chips, workers)) for chips in (1, CHIPS)]
            rows += [decode_row(model, shape, one) for one in (*timed, *peers_of(shape, workers, keys=PEER_KEYS))]
    return rows


def decode_row(model: Model, shape: decoding.Shape, one: dict[str, Any]) -> dict[str, Any]:
    per_s = shape.batch / (one["us"] * model.layers) * 1e6
    return {
        "model": model.name,
        "context": shape.context,
        "batch": shape.batch,
        "program": one["program"],
        "chips": one["chips"],
        "us per layer": one["us"],
        "x floor": one["x floor"],
        "% of HBM bandwidth": 100 * shape.cache_bytes / one["chips"] / V5E.hbm_bytes_per_s / one["us"] * 1e6,
        "tokens/s": per_s,
        **per_dollar(per_s, one["chips"]),
    }
