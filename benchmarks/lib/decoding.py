"""Decoding, modelled: one chip and four, ours and JAX's kernels, at the same shapes.

``floor us`` is the time of the cache's bytes at the bandwidth that DMAs reach (fitted, ``ratchet.tpu.chips.fitted``)
on the chips of the row, of chunks that of the products at the matrix units' peak if it is longer; ``x floor`` the whole
program over it, on four chips with their launch barrier before the program (``launch us``, of the chip that ends it
last). ``kernel x floor`` is the kernel on that chip, which waits for the others least: its own part and the combining.
``best of`` says which block sizes of a peer were tried. All sequences are full but where a shape is ragged; pages are
permuted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.lib.programs import modelled, of_function, of_source, struct
from benchmarks.lib.sources import ROOT, edited
from ratchet.exam.judge.workers import Workers
from ratchet.tpu.chips import V5E
from ratchet.values import Timeline
from ratchet.values.status import Refusal

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

    @property
    def floor_us(self) -> float:
        """Of the cache's bytes at the bandwidth that DMAs reach, or of the products at the matrix units' peak."""
        seen = self.lengths.astype(int)[:, None] - np.arange(self.chunk)
        pairs = int(np.minimum(seen, self.window or self.context).clip(0).sum()) * self.q_heads
        bytes_s = self.cache_bytes / V5E.achievable_hbm_bytes_per_s
        return 1e6 * max(bytes_s, 4 * pairs * self.head_dim / V5E.peak_bf16_flops)

    @property
    def cache_bytes(self) -> int:
        """Of the keys that attend, and their values."""
        keys = np.minimum(self.lengths, self.window + self.chunk if self.window else self.context).sum()
        return int(keys) * self.kv_heads * self.head_dim * jnp.dtype(self.dtype).itemsize * 2

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
SERVING = (
    *SHAPES,
    Shape(name="ragged", q_heads=32, kv_heads=8, batch=32, context=8192, ragged=True),
    Shape(name="window 1024", q_heads=32, kv_heads=16, batch=8, context=16384, window=1024),
    Shape(name="window 4096, ragged", q_heads=32, kv_heads=8, batch=32, context=16384, window=4096, ragged=True),
    Shape(name="int8", dtype="int8", **NARROW),
    Shape(name="float8", dtype="float8_e4m3fn", **NARROW),
    Shape(name="chunks of 512", q_heads=32, kv_heads=8, batch=4, context=8192, chunk=512),
    Shape(name="chunks of 512, short", q_heads=32, kv_heads=8, batch=8, context=2048, chunk=512),
    Shape(name="chunk of 2048", q_heads=32, kv_heads=8, context=16384, chunk=2048),
)
"""On one chip: what is served besides, Gemma 3's heads and window and chunked prefill among them."""


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
    queries = struct((shape.batch, shape.q_heads, *chunk, shape.head_dim), jnp.bfloat16)
    avals = [queries, pool, pool, struct((shape.batch,), jnp.int32), struct(table.shape, jnp.int32)]
    return avals, {3: shape.lengths, 4: table}


def flash(shape: Shape, workers: Workers) -> Timeline:
    """``pallas_flash.paged_attention`` on one chip."""
    from pallas_flash import paged_attention

    avals, steering = paged_operands(shape)
    program = functools.partial(paged_attention, window=shape.window or None, **scales_of(shape))
    return modelled(of_function(program, avals), workers, steering)


def scales_of(shape: Shape) -> dict[str, float]:
    """What the elements of a narrow cache are multiplied with, as options of an operator."""
    return {} if shape.dtype == "bfloat16" else {"k_scale": 1 / 64, "v_scale": 1 / 64}


def contiguous(shape: Shape, workers: Workers) -> Timeline:
    """``decode_kernel.py`` at another context."""
    return modelled(of_source(edited(HEADLINE.read_text(), CONTEXT=shape.context))[0], workers)


def paged_peer(shape: Shape, pages_at_once: int, workers: Workers) -> Timeline:
    """JAX's ``paged_attention``, which has no windows and one scale for all of a narrow cache neither."""
    from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention

    avals, steering = paged_operands(shape)
    program = functools.partial(paged_attention, pages_per_compute_block=pages_at_once)
    return modelled(of_function(program, avals), workers, steering)


def ragged_peer(shape: Shape, pages_at_once: int, workers: Workers) -> Timeline:
    """JAX's ``ragged_paged_attention``, every sequence with one query or a chunk of them."""
    from jax.experimental.pallas.ops.tpu.ragged_paged_attention import ragged_paged_attention

    steering: dict[int | str, np.ndarray] = {
        2: shape.lengths,
        3: table_of(shape, 1)[0],
        4: max(1, shape.chunk) * np.arange(shape.batch + 1, dtype=np.int32),
        5: np.array([shape.batch], np.int32),
    }
    pool = (steering[3].size, shape.page, 2 * shape.kv_heads, shape.head_dim)
    avals = [
        struct((shape.batch * max(1, shape.chunk), shape.q_heads, shape.head_dim), jnp.bfloat16),
        struct(pool, jnp.dtype(shape.dtype)),
        *(struct(array.shape, jnp.int32) for array in steering.values()),
    ]
    program = functools.partial(
        ragged_paged_attention,
        sm_scale=shape.head_dim**-0.5,
        sliding_window=shape.window or None,
        **scales_of(shape),
        num_kv_pages_per_block=pages_at_once,
        num_queries_per_block=128 if shape.chunk else 8,
        vmem_limit_bytes=100 << 20,
    )
    steering["kernel:3"] = np.zeros(2, np.int32)  # a constant of its own, which XLA computes
    return modelled(of_function(program, avals), workers, steering)


def best(peer: Callable[..., Timeline], shape: Shape, keys: Sequence[int], workers: Workers) -> tuple[Timeline, str]:
    """The fastest of some block sizes, in keys; what cannot be compiled or modelled is named."""
    modelled: list[tuple[Timeline, int]] = []
    failed: list[tuple[int, Refusal]] = []
    for size in keys:
        pages = size // shape.page
        if pages < 1 or shape.context // shape.page % pages:
            continue
        try:
            modelled.append((peer(shape, pages, workers), size))
        except Refusal as refusal:
            failed.append((size, refusal))
    if not modelled:
        raise failed[0][1]
    timeline, size = min(modelled, key=lambda pair: pair[0].cycles)
    tried = ", ".join(str(each) for _, each in modelled)
    return timeline, f"{size} of {tried} keys" + "".join(f"; {n}: {refusal.status.name}" for n, refusal in failed)


def offered(shape: Shape) -> dict[str, Callable[..., Timeline]]:
    """The peers that have what a shape asks for."""
    peers: dict[str, Callable[..., Timeline]] = {"jax ragged_paged_attention": ragged_peer}
    if not shape.window and not shape.chunk and shape.dtype == "bfloat16":
        peers["jax paged_attention"] = paged_peer
    return peers


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


def rows_of(shape: Shape, workers: Workers, *, peers: bool = True) -> list[dict[str, Any]]:
    """All programs at one shape, or ours alone."""
    rows = []
    if shape.batch == 1 and shape.q_heads == shape.kv_heads == 16 and HEADLINE.exists():
        rows.append(row(shape, "decode_kernel.py", contiguous(shape, workers)))
    rows += [row(shape, "paged_decode", ours(shape, chips, workers)) for chips in (4, 1)]
    return [*rows, *(peers_of(shape, workers) if peers else ())]


def peers_of(shape: Shape, workers: Workers) -> Iterator[dict[str, Any]]:
    """JAX's kernels on one chip, each at the best of its block sizes."""
    for name, peer in offered(shape).items():
        try:
            yield row(shape, name, *best(peer, shape, (128, 256, 512, 1024, 2048), workers))
        except Refusal as refusal:
            print(f"{shape.name}, {name}: {refusal.status.name}: {refusal.message}")
