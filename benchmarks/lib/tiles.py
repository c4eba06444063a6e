"""Attention on one chip over square blocks and over the head dimension, modelled. See ``benchmarks.tiles``."""

from __future__ import annotations

from typing import Any

from benchmarks.lib.attention.cases import MORE_VMEM, SHAPES, Shape
from benchmarks.lib.attention.kept import attention_programs

BLOCKS = (128, 256, 512, 1024, 2048)
DIMS = (64, 96, 128, 192, 256)


def _flash(block: int) -> dict[str, Any]:
    return {"q": block, "k_major": block, "k": block, **MORE_VMEM}


def _ours(block: int) -> dict[str, Any]:
    """Knobs other than the blocks as they came out first."""
    rows = min(block, 512)
    chains = min(4, block // rows)
    return {"forward": {"block_q": block, "block_kv": block, "rows": rows, "strip": min(block, 256), "unroll": chains}}


def block_rows() -> list[dict[str, Any]]:
    """One row per program and block size."""
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


def dim_rows() -> list[dict[str, Any]]:
    """One row per head dimension."""
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
