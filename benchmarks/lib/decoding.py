"""Decoding and chunked prefill, modelled: one chip and four, ours at the shapes that are compared.

``floor us`` is the time of the cache's bytes at the bandwidth that DMAs reach (fitted, ``ratchet.tpu.chips.fitted``)
on the chips of the row, of chunks that of the products at the matrix units' peak if it is longer; ``x floor`` the whole
program over it, on four chips with their launch barrier before the program (``launch us``, of the chip that ends it
last). ``kernel x floor`` is the kernels on that chip, which waits for the others least: its own part and the combining.
``best of`` says which block sizes of a peer (``benchmarks/lib/paged_peers.py``) were tried. All sequences are full but
where a shape is ragged; pages are permuted.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.lib.programs import modelled, of_function, of_source, struct
from benchmarks.lib.sources import ROOT, edited
from ratchet.exam.judge.workers import Workers
from ratchet.tpu.chips import V5E
from ratchet.values import Timeline

import jax.numpy as jnp  # isort: skip

PAGED = ROOT / "examples" / "paged_decode.py"
HEADLINE = ROOT / "decode_kernel.py"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One decoding problem: a token for each of ``batch`` sequences of ``context`` keys."""

    name: str
    batch: int = 1
    q_heads: int = 16
    kv_heads: int = 16
    context: int = 32768
    page: int = 64
    head_dim: int = 128
    quick: bool = False
    ragged: bool = False
    """Lengths from a 64th of the context to all of it, as many from n to 2 n as from 2 n to 4 n."""
    window: int = 0
    """Only the last so many keys attend; 0 for all."""
    dtype: str = "bfloat16"
    """Of the cache."""
    chunk: int = 0
    """Queries of each sequence, at its last places; 0 for one, which is decoding."""
    value_dim: int = 0
    """Columns of a cache of latents, which are keys and values; 0 where it has none."""
    halves: bool = False
    """The heads have half the columns of a cache, keys and then values, and sinks."""

    @property
    def floor_us(self) -> float:
        """Of the cache's bytes at the bandwidth that DMAs reach, or of the products at the matrix units' peak."""
        seen = self.lengths.astype(int)[:, None] - np.arange(self.chunk)
        pairs = int(np.minimum(seen, self.window or self.context).clip(0).sum()) * self.q_heads
        bytes_s = self.cache_bytes / V5E.achievable_hbm_bytes_per_s
        flops = 2 * pairs * (self.dim + (self.value_dim or self.dim))
        return 1e6 * max(bytes_s, flops / V5E.peak_bf16_flops)

    @property
    def dim(self) -> int:
        """Of a head's queries."""
        return self.head_dim // 2 if self.halves else self.head_dim

    @property
    def cache_bytes(self) -> int:
        """Of the keys that attend, and their values."""
        keys = np.minimum(self.lengths, self.window + self.chunk if self.window else self.context).sum()
        caches = 1 if self.value_dim or self.halves else 2
        return int(keys) * self.kv_heads * self.head_dim * jnp.dtype(self.dtype).itemsize * caches

    @property
    def lengths(self) -> np.ndarray:
        """Keys of every sequence: int32[batch]."""
        if not self.ragged:
            return np.full(self.batch, self.context, np.int32)
        share = np.random.default_rng(1).uniform(np.log2(1 / 64), 0, self.batch)
        return (self.context * 2**share).astype(np.int32)


SHAPES = (
    Shape(name="headline", quick=True),
    Shape(name="128k", context=131072),
    Shape(name="1M", context=1 << 20),
    Shape(name="grouped-query", q_heads=32, kv_heads=8, quick=True),
    Shape(name="grouped-query 128k", q_heads=32, kv_heads=8, context=131072),
    Shape(name="batch 8", batch=8, q_heads=32, kv_heads=8, context=8192),
    Shape(name="batch 32", batch=32, q_heads=32, kv_heads=8, context=4096),
    Shape(name="pages of 16", q_heads=32, kv_heads=8, page=16),
)


NARROW = {"q_heads": 32, "kv_heads": 8, "batch": 8, "context": 8192}
LATENTS = {"kv_heads": 1, "context": 8192, "head_dim": 640, "value_dim": 512, "ragged": True}
HALVES = {"context": 8192, "halves": True, "ragged": True}
SERVING = (
    *SHAPES,
    Shape(name="ragged", q_heads=32, kv_heads=8, batch=32, context=8192, ragged=True),
    Shape(name="ragged, short", q_heads=32, kv_heads=8, batch=64, context=1024, ragged=True),
    Shape(name="one key head", q_heads=8, kv_heads=1, batch=64, context=8192, ragged=True),
    Shape(name="one key head, short", q_heads=8, kv_heads=1, batch=64, context=1024, ragged=True),
    Shape(name="two key heads", q_heads=8, kv_heads=2, batch=64, context=4096, ragged=True),
    Shape(name="heads of 256", q_heads=16, kv_heads=8, batch=16, context=8192, head_dim=256, ragged=True),
    Shape(name="window 1024", q_heads=32, kv_heads=16, batch=8, context=16384, window=1024),
    Shape(name="window 4096, ragged", q_heads=32, kv_heads=8, batch=32, context=16384, window=4096, ragged=True),
    Shape(name="int8", dtype="int8", **NARROW),
    Shape(name="float8", dtype="float8_e4m3fn", **NARROW),
    Shape(name="heads of 64", q_heads=64, kv_heads=8, batch=32, **HALVES),
    Shape(name="heads of 64, window 128", q_heads=64, kv_heads=8, batch=32, window=128, **HALVES),
    Shape(name="heads of 64, one key head", q_heads=8, kv_heads=1, batch=64, **HALVES),
    Shape(name="latents, 16 heads", q_heads=16, batch=64, **LATENTS),
    Shape(name="latents, 128 heads", q_heads=128, batch=32, **LATENTS),
    Shape(name="chunks of 512", q_heads=32, kv_heads=8, batch=4, context=8192, chunk=512),
    Shape(name="chunks of 512, short", q_heads=32, kv_heads=8, batch=8, context=2048, chunk=512),
    Shape(name="chunks of 512, window 1024", q_heads=32, kv_heads=16, batch=4, context=8192, chunk=512, window=1024),
    Shape(name="chunk of 2048", q_heads=32, kv_heads=8, context=16384, chunk=2048),
)
"""On one chip: what is served besides. Among it what tensor parallelism leaves of the heads of Llama 3 70B and Qwen 3,
Gemma 3's heads and window, GPT-OSS's heads and sinks, DeepSeek's latents of 576 in whole lanes on eight chips and on
one, and chunked prefill."""


def table_of(shape: Shape, chips: int) -> np.ndarray:
    """Permuted pages of every chip: int32[chips, batch, pages]."""
    pages = shape.context // chips // shape.page
    random = np.random.default_rng(0)
    own = [random.permutation(shape.batch * pages) for _ in range(chips)]
    return np.stack(own).reshape(chips, shape.batch, pages).astype(np.int32)


def ours(shape: Shape, chips: int, workers: Workers) -> Timeline:
    """``examples/paged_decode.py`` at a shape."""
    constants = {"BATCH": shape.batch, "CONTEXT": shape.context, "PAGE": shape.page, "CHIPS": chips}
    heads = {"Q_HEADS": shape.q_heads, "KV_HEADS": shape.kv_heads, "HEAD_DIM": shape.head_dim}
    source = edited(PAGED.read_text(), **constants, **heads)
    return modelled(of_source(source)[0], workers, {3: shape.lengths, 4: table_of(shape, chips)})


def paged_operands(shape: Shape) -> tuple[list[Any], dict[int, np.ndarray]]:
    """Queries, caches, lengths and table of one chip, and the values of the last two."""
    table = table_of(shape, 1)[0]
    pool = struct((shape.kv_heads, table.size, shape.page, shape.head_dim), jnp.dtype(shape.dtype))
    chunk = (shape.chunk,) if shape.chunk else ()
    queries = struct((shape.batch, shape.q_heads, *chunk, shape.dim), jnp.bfloat16)
    avals = [queries, pool, pool, struct((shape.batch,), jnp.int32), struct(table.shape, jnp.int32)]
    return avals, {3: shape.lengths, 4: table}


def flash(shape: Shape, workers: Workers) -> Timeline:
    """``pallas_flash.paged_attention`` on one chip, or ``latent_attention``."""
    from pallas_flash import latent_attention, paged_attention

    avals, steering = paged_operands(shape)
    if shape.value_dim:
        latent = functools.partial(latent_attention, value_dim=shape.value_dim, scale=0.1)
        pages = struct(avals[1].shape[1:], avals[1].dtype)
        return modelled(of_function(latent, [avals[0], pages, *avals[3:]]), workers, {2: steering[3], 3: steering[4]})
    program: Any = functools.partial(paged_attention, window=shape.window or None, **scales_of(shape))
    if shape.halves:
        avals[2] = struct((shape.q_heads,), jnp.float32)
        halves = lambda q, pages, sinks, *rest: program(q, pages, None, *rest, sinks=sinks)  # noqa: E731
        return modelled(of_function(halves, avals), workers, steering)
    return modelled(of_function(program, avals), workers, steering)


def scales_of(shape: Shape) -> dict[str, float]:
    """What the elements of a narrow cache are multiplied with, as options of an operator."""
    return {} if shape.dtype == "bfloat16" else {"k_scale": 1 / 64, "v_scale": 1 / 64}


def contiguous(shape: Shape, workers: Workers) -> Timeline:
    """``decode_kernel.py`` at another context."""
    return modelled(of_source(edited(HEADLINE.read_text(), CONTEXT=shape.context))[0], workers)


def row(shape: Shape, program: str, timeline: Timeline, best_of: str = "") -> dict[str, Any]:
    """One line of the table."""
    us = 1e6 / timeline.clock_hz
    chips = timeline.chips or (timeline,)
    floor = shape.floor_us / len(chips)
    kernel = min(sum(op.cycles for op in chip.ops if op.opcode == "custom-call") for chip in chips) * us
    return {
        "shape": shape.name,
        "batch": shape.batch,
        "heads": f"{shape.q_heads}/{shape.kv_heads}",
        "context": shape.context,
        "program": program,
        "chips": len(chips),
        "us": timeline.cycles * us,
        "floor us": floor,
        "x floor": timeline.cycles * us / floor,
        "launch us": max(chip.launch_cycles for chip in chips) * us,
        "kernel x floor": kernel / floor,
        "tokens/s": shape.batch * max(1, shape.chunk) / (timeline.cycles * us) * 1e6,
        "best of": best_of,
    }


def rows_of(shape: Shape, workers: Workers) -> list[dict[str, Any]]:
    """All of ours at one shape."""
    rows = []
    if shape.batch == 1 and shape.q_heads == shape.kv_heads == 16 and HEADLINE.exists():
        rows.append(row(shape, "decode_kernel.py", contiguous(shape, workers)))
    return rows + [row(shape, "paged_decode", ours(shape, chips, workers)) for chips in (4, 1)]
