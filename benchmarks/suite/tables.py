"""The tables of the suite: who makes their rows, and for which models. Pieces are made in processes of their own."""

from __future__ import annotations

import functools
import multiprocessing
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import baseline_mha
from benchmarks.lib import decoding
from benchmarks.lib.attention.cases import MORE_VMEM, SHAPES, Config, Shape, attention_programs, forward_blocks
from benchmarks.suite.models import CHIPS, Model, Rows, decode_rows, prefill_ms, prefill_rows
from ratchet.exam.judge.workers import Workers
from ratchet.tpu.chips import V5E
from ratchet.values.status import Refusal

BLOCKS = (128, 256, 512, 1024, 2048)
DIMS = (64, 96, 128, 192, 256)
CONTEXTS = {"decode": (512, 1024, 2048, 4096, 8192, 32768, 131072), "prefill": (128, 256, 512, 1024)}


def crossover(slower: Callable[[int], bool], contexts: Sequence[int]) -> int | None:
    """The smallest context, to half of the smallest one, at which four chips are no longer ``slower``."""
    wins = next((context for context in contexts if not slower(context)), None)
    if wins is None or wins == contexts[0]:
        return wins
    step = contexts[0] // 2
    between = range(wins // 2 + step, wins, step)
    return (*between, wins)[bisect_left(between, True, key=lambda context: not slower(context))]


def crossover_rows(what: str, model: str, us: Callable[[int, int], float], contexts: Sequence[int]) -> Rows:
    """One row per context; ``us(context, chips)`` are the latencies, asked for once each."""
    latency = functools.cache(us)
    crossing = crossover(lambda context: latency(context, CHIPS) >= latency(context, 1), contexts)
    return [
        {
            "what": what,
            "model": model,
            "context": context,
            "one chip us": latency(context, 1),
            "four chips us": latency(context, CHIPS),
            "times as fast": latency(context, 1) / latency(context, CHIPS),
            "four win from": crossing,
        }
        for context in sorted({*contexts, *((crossing,) if crossing else ())})
    ]


def crossings(what: str, model: Model) -> Rows:
    """One layer over the context: decoding one sequence, or attention over a whole prompt."""
    with Workers(V5E, keep=False) as workers:

        def us(context: int, chips: int) -> float:
            if what == "decode":
                return decoding.ours(model.token(context, 1, chips), chips, workers).latency_ms * 1e3
            return prefill_ms(model, context, chips, workers) * 1e3

        return crossover_rows(what, model.name, us, CONTEXTS[what])


def _flash(block: int) -> Config:
    """jax's ``flash_attention`` fetches a block of keys for every grid step."""
    return {"q": block, "k_major": block, "k": block, **MORE_VMEM}


def _ours(block: int) -> Config:
    """``pallas_flash`` keeps keys and values of a head in VMEM and walks them in a loop, a block of them a turn."""
    return {"forward": forward_blocks(block, max(1, block // 512))}


def block_rows(_model: Model) -> Rows:
    """Both over square blocks, at 1 head, 16384 x 128, causal: one row per program and block size."""
    tried = [("jax flash", block, "flash", _flash(block)) for block in BLOCKS]
    tried += [("pallas_flash", block, "ours", _ours(block)) for block in BLOCKS]
    recipes = [SHAPES["headline"].program(impl, config) for *_, impl, config in tried]
    rows = []
    for (program, block, *_), figures in zip(tried, attention_programs().made(recipes), strict=True):
        row: dict[str, Any] = {"program": program, "block": block}
        if "error" in figures:
            rows.append({**row, "note": "does not compile: " + " ".join(figures["error"].split())[:60]})
            continue
        rows.append(
            {
                **row,
                "ms": figures["ms"],
                "MXU busy %": figures["mxu_pct"],
                "empty bundles %": figures["empty_pct"],
                "waiting for DMA %": figures["wait_pct"],
                "store slot %": figures["slots_pct"]["VSTORE"],
                "VMEM MiB": figures["vmem_bytes"] / 2**20,
                "spill stores": figures["spill_stores"],
                "HBM MB": figures["hbm_moved_bytes"] / 1e6,
            }
        )
    return rows


def dim_rows(_model: Model) -> Rows:
    """``pallas_flash`` at 8 heads of 4096: what of the time is spent outside the kernel, where XLA pads and copies."""
    shapes = [Shape(batch=1, heads=8, kv_heads=8, seq=4096, dim=dim, causal=True) for dim in DIMS]
    recipes = [shape.program("ours", {}) for shape in shapes]
    rows = []
    for shape, figures in zip(shapes, attention_programs().made(recipes), strict=True):
        outside = sum(ms for name, ms in figures["ops"] if not name.startswith("flash_forward"))
        least = 4 * shape.heads * shape.seq * shape.dim * 2
        rows.append(
            {
                "head dim": shape.dim,
                "ms": figures["ms"],
                "us per lane of the head": figures["ms"] / shape.dim * 1e3,
                "outside the kernel %": 100 * outside / figures["ms"],
                "HBM MB": figures["hbm_moved_bytes"] / 1e6,
                "q k v o MB": least / 1e6,
            }
        )
    return rows


def floor_rows(workers: Workers) -> Rows:
    """Ours at the shapes of ``benchmarks.decode``, against the floor."""
    keys = ("shape", "batch", "heads", "context", "program", "chips", "us", "x floor", "launch us", "kernel x floor")
    timed = [one for shape in decoding.SHAPES for one in decoding.rows_of(shape, workers)]
    return [{key: one[key] for key in keys} for one in timed]


def roofline_rows(workers: Workers) -> Rows:
    """The points of the roofline, as they are drawn."""
    return [vars(point) for point in baseline_mha.points(workers)]


def alone(rows: Callable[[Workers], Rows]) -> Callable[[Model], Rows]:
    """A table that asks no model, only the compiler."""

    def made(_model: Model) -> Rows:
        with Workers(V5E, keep=False) as workers:
            return rows(workers)

    return made


TABLES: dict[str, tuple[str, Callable[[Model], Rows], Callable[[Model], bool] | None]] = {
    "prefill": ("prefill, attention of all layers, modelled", prefill_rows, lambda _: True),
    "decoding": ("decoding, attention of all layers, modelled", decode_rows, lambda _: True),
    "crossover": (
        "one chip against four, batch 1, one layer, modelled",
        functools.partial(crossings, "decode"),
        lambda m: not m.long,
    ),
    "prefill crossover": ("the same for prefill", functools.partial(crossings, "prefill"), lambda m: not m.long),
    "floor": ("decoding over the time of its cache at the bandwidth of DMAs, modelled", alone(floor_rows), None),
    "blocks": ("block sizes, 1 head, 16384 x 128, causal, modelled", block_rows, None),
    "dims": ("head dimensions, 8 heads, 4096, causal, modelled", dim_rows, None),
    "limits": ("plain XLA: the longest sequence, 16 heads x 128", alone(baseline_mha.limits), None),
    "roofline": ("the roofline's points, modelled", alone(roofline_rows), None),
}
"""Name -> title, who makes the rows, and for which models; None for what asks no model."""


def _piece(name: str, model: Model) -> Rows | str:
    """One table's rows for one model, or in words why there are none: an exception need not survive the way back."""
    try:
        return TABLES[name][1](model)
    except Refusal as refusal:
        return f"{name}, {model.name}: {refusal.status.name}: {refusal.message[:300]}"


def compute(
    models: Sequence[Model], processes: int, names: Iterable[str] = TABLES
) -> tuple[dict[str, Rows], list[str]]:
    """The tables asked for, one piece per model and table, ``processes`` at a time; and what failed."""
    wanted = {
        name: [model for model in models if chosen(model)] if chosen else models[:1]
        for name, (_, _, chosen) in TABLES.items()
        if name in names
    }
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn, max_tasks_per_child=1) as pool:
        pieces = {name: [pool.submit(_piece, name, model) for model in own] for name, own in wanted.items()}
        results = {name: [piece.result() for piece in own] for name, own in pieces.items()}
    tables = {
        name: [row for piece in own if not isinstance(piece, str) for row in piece] for name, own in results.items()
    }
    return tables, [piece for own in results.values() for piece in own if isinstance(piece, str)]
