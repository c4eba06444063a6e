"""What tiles, VMEM, spills and copies do to attention on one chip, modelled: 1 head, 16384 x 128, causal, bfloat16.

    python -m benchmarks.tiles [--json FILE]

jax's ``flash_attention`` fetches a block of keys for every grid step; ``pallas_flash`` keeps keys and values of a head
in VMEM and walks them in a loop. Both over square blocks. Then ``pallas_flash`` over the head dimension, 8 heads of
4096: what of the time is spent outside the kernel, where XLA pads and copies.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.lib.attention.cases import MORE_VMEM, SHAPES, Shape
from benchmarks.lib.attention.kept import attention_programs
from benchmarks.lib.table import show

BLOCKS = (128, 256, 512, 1024, 2048)
DIMS = (64, 96, 128, 192, 256)


def flash(block: int) -> dict[str, Any]:
    """jax's flash attention over square blocks."""
    return {"q": block, "k_major": block, "k": block, **MORE_VMEM}


def ours(block: int) -> dict[str, Any]:
    """Ours over square blocks, the other knobs as they came out first."""
    rows = min(block, 512)
    chains = min(4, block // rows)
    return {"forward": {"block_q": block, "block_kv": block, "rows": rows, "strip": min(block, 256), "unroll": chains}}


def recipe(impl: str, shape: Shape, config: dict[str, Any]) -> dict[str, Any]:
    return {"impl": impl, "shape": shape.recipe, "grad": False, "config": config}


def figures_of(recipes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each recipe in turn, compiled where it is not known yet."""
    recipes, programs = list(recipes), attention_programs()
    programs.fill(recipes, lambda line: None)
    return [programs.find(one) or {"error": "did not end"} for one in recipes]


def block_rows() -> list[dict[str, Any]]:
    """One row per program and block size."""
    tried = [(impl, block) for impl in ("jax flash", "pallas_flash") for block in BLOCKS]
    config = {"jax flash": ("flash", flash), "pallas_flash": ("ours", ours)}
    timings = figures_of(recipe(config[impl][0], SHAPES["headline"], config[impl][1](block)) for impl, block in tried)
    rows = []
    for (impl, block), figures in zip(tried, timings, strict=True):
        row: dict[str, Any] = {"program": impl, "block": block}
        if "error" in figures:
            rows.append({**row, "ms": None, "note": "does not compile: " + " ".join(figures["error"].split())[:60]})
            continue
        rows.append(
            {
                **row,
                "ms": figures["ms"],
                "MXU busy %": figures["mxu_pct"],
                "empty bundles %": figures["empty_pct"],
                "waiting for DMA %": figures["wait_pct"],
                "programs slot %": figures["slots_pct"]["VSTORE"],
                "VMEM MiB": figures["vmem_bytes"] / 2**20,
                "spill programss": figures["spill_programss"],
                "HBM MB": figures["hbm_moved_bytes"] / 1e6,
            }
        )
    return rows


def dim_rows() -> list[dict[str, Any]]:
    """One row per head dimension."""
    shapes = [Shape(batch=1, heads=8, kv_heads=8, seq=4096, dim=dim, causal=True) for dim in DIMS]
    rows = []
    for shape, figures in zip(shapes, figures_of(recipe("ours", shape, {}) for shape in shapes), strict=True):
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    show("block sizes", block_rows(), json_file=options.json)
    show("head dimensions", dim_rows())


if __name__ == "__main__":
    main()
