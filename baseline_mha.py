"""Attention as plain ``jax.numpy`` under ``jit``: the baseline that every kernel here has to beat.

    python baseline_mha.py [--quick] [--json FILE] [--plot FILE]

1. Finds the largest sequence that still fits a TPU v5e's HBM, by compiling (no TPU is needed): 16 heads x 128, bfloat16
   and float32, causal and not; beside it the size of the logits, which is what overflows.
2. Models this baseline, ``kernel.py`` and ``decode_kernel.py`` and draws them into one roofline: useful FLOPs per byte
   that the modelled run moved through HBM, and useful FLOP/s, per chip. ``--quick`` leaves this out.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.lib.command import command
from benchmarks.lib.plots import Point, plot_roofline
from benchmarks.lib.programs import compiled, modelled, of_function, of_source, struct
from benchmarks.lib.sources import ROOT
from benchmarks.lib.table import show_all
from ratchet.exam.judge.workers import Workers
from ratchet.tpu.chips import V5E
from ratchet.values.status import Refusal, Status

import jax  # isort: skip (benchmarks.lib.programs decides for which platform)
import jax.numpy as jnp  # isort: skip

HEADS, HEAD_DIM = 16, 128
DECODER = ROOT / "decode_kernel.py"
STEP, LARGEST = 1024, 1 << 17
GiB = 1 << 30


def attention(q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool) -> jax.Array:
    """softmax(q k^T / sqrt(d)) v for q, k, v [heads, sequence, d], all in their own dtype, logits held whole."""
    logits = jnp.einsum("hqd,hkd->hqk", q, k) * (q.shape[-1] ** -0.5)
    if causal:
        length = q.shape[1]
        logits = jnp.where(jnp.tri(length, dtype=bool), logits, -jnp.inf)
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(logits, axis=-1), v)


def fits(sequence: int, dtype: Any, causal: bool, workers: Workers) -> int:
    """Bytes of HBM that attention over ``sequence`` needs, or 0 if the compiler says that it does not fit."""
    shape = struct((HEADS, sequence, HEAD_DIM), dtype)
    artefact = of_function(lambda q, k, v: attention(q, k, v, causal=causal), [shape] * 3)
    try:
        return compiled(artefact, workers).footprint.hbm_bytes
    except Refusal as refusal:
        if refusal.status is not Status.HBM_OVERFLOW:
            raise
        return 0


def largest(fit: Callable[[int], int]) -> tuple[int, int]:
    """The largest multiple of STEP that fits, and the bytes that it needs."""
    needs = functools.cache(fit)
    largest = STEP * bisect_left(range(STEP, LARGEST, STEP), True, key=lambda length: not needs(length))
    return largest, needs(largest) if largest else 0


def limits(workers: Workers) -> list[dict[str, Any]]:
    """One row per dtype and mask."""
    rows = []
    for dtype in (jnp.bfloat16, jnp.float32):
        for causal in (False, True):
            sequence, needs = largest(lambda s, d=dtype, c=causal: fits(s, d, c, workers))  # type: ignore[misc]
            size = jnp.dtype(dtype).itemsize
            rows.append(
                {
                    "inputs": jnp.dtype(dtype).name,
                    "causal": causal,
                    "largest that fits": sequence,
                    "first that does not": sequence + STEP,
                    "logits GiB": HEADS * sequence**2 * size / GiB,
                    "needs GiB": needs / GiB,
                    "next logits GiB": HEADS * (sequence + STEP) ** 2 * size / GiB,
                }
            )
    return rows


def points(workers: Workers) -> list[Point]:
    """The baseline at the kernel's own problem, the kernel and the decoder, modelled."""
    kernel, problem = of_source((ROOT / "kernel.py").read_text())
    plain = of_function(
        lambda q, k, v: attention(q[None], k[None], v[None], causal=True)[0],
        [struct(spec.shape, spec.dtype) for spec in problem.inputs],
    )
    programs = [("plain XLA, prefill", plain, problem.flops), ("kernel.py", kernel, problem.flops)]
    if DECODER.exists():
        decoder, decoding = of_source(DECODER.read_text())
        one_query = of_function(
            lambda q, k, v: attention(q[:, None], k, v, causal=False)[:, 0],
            [struct(spec.shape, spec.dtype) for spec in decoding.inputs],
        )
        programs += [
            ("plain XLA, decode, one chip", one_query, decoding.flops),
            ("decode_kernel.py, four chips", decoder, decoding.flops),
        ]
    measured = []
    for name, artefact, flops in programs:
        timeline = modelled(artefact, workers)
        chips = timeline.chips or (timeline,)
        moved = sum(chip.hbm_read_bytes + chip.hbm_write_bytes for chip in chips)
        measured.append(
            Point(
                name=name,
                latency_ms=timeline.latency_ms,
                flops_per_byte=flops / moved,
                flops_per_s=flops / len(chips) / (timeline.latency_ms / 1e3),
            )
        )
    return measured


def main() -> None:
    parser = command(__doc__, quick="the limits alone, without the roofline")
    parser.add_argument("--plot", type=Path, metavar="FILE", default=Path("roofline.svg"), help="default: roofline.svg")
    options = parser.parse_args()
    with Workers(V5E, keep=False) as workers:
        title = f"plain attention, {HEADS} heads x {HEAD_DIM}, on {V5E.name} with {V5E.hbm_bytes / GiB:.2f} GiB of HBM"
        tables = {title: limits(workers)}
        curve = [] if options.quick else points(workers)
    tables["the same roofline for all (modelled)"] = [
        {
            "program": point.name,
            "latency ms": point.latency_ms,
            "useful FLOP per HBM byte": point.flops_per_byte,
            "useful TFLOP/s per chip": point.flops_per_s / 1e12,
            "% of the roof above it": 100 * point.flops_per_s / point.roof(V5E),
        }
        for point in curve
    ]
    show_all(tables, json_file=options.json)
    if curve:
        plot_roofline(curve, V5E, options.plot)
        print(f"plot: {options.plot}")


if __name__ == "__main__":
    main()
