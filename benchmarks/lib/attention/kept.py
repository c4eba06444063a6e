"""Figures of attention recipes on disk, under ``.ratchet/attention``."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from benchmarks.lib import cache
from benchmarks.lib.cache import ProgramCache, Recipe
from ratchet.tpu.chips import CHIPS, V5E
from ratchet.tpu.compiler.environment import compiler_version

OURS = tuple(f"pallas_flash/{name}.py" for name in ("operator", "config", "tables", "target", "kernels/*"))
"""What decides a program whose blocks are given."""


def attention_programs(folder: Path = cache.ROOT / "attention") -> ProgramCache:
    """The cache of recipes of :mod:`benchmarks.lib.attention.programs`; records are figures or an ``error``."""
    try:
        tokamax = importlib.metadata.version("tokamax")
    except importlib.metadata.PackageNotFoundError:
        tokamax = ""
    # The machine decides, too, and the constants of its chip, but not a benchmark's own wiring.
    common = cache.digest(
        "ratchet/tpu/dump/*.py", "ratchet/tpu/machine/*.py", "ratchet/tpu/account/*.py", "ratchet/tpu/chips/*.py"
    )
    common += compiler_version()
    versions = {
        "ours": common + cache.digest(*OURS),
        "kernel.py": common + cache.digest("kernel.py"),
        "tokamax": common + tokamax,
    }

    def version(recipe: Recipe) -> str:
        chip = CHIPS[recipe.get("chip", V5E.name)]
        return f"{versions.get(recipe['impl'], common)}{chip}{chip.constants}"

    return ProgramCache(folder, worker="benchmarks.lib.attention.worker", version=version)
