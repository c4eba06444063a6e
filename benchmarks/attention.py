"""Attention side by side: ours, jax's, tokamax's and plain XLA's.

    python -m benchmarks.attention [--chip NAME] [--grad] [--training] [--only SHAPE ...] [--settings N] [--compiled]
                                   [--json FILE]

Whole programs from public operands to output, compiled for TPU v5e, v6e or tpu7x by the same compiler and *modelled* by
the same machine; each implementation with the best of its block sweep. Seven shapes, or with ``--training`` layers of
models that people train, with as many settings of each; ``--settings`` tries the first N of each. ``--grad`` compares
the forward pass with the backward one. The shapes ``window``, ``documents`` and ``mask``, on v5e, are compared where
``--only`` names them. ``--compiled`` leaves out what is not compiled yet, and says how many of each sweep are. Compiled
figures are kept in ``.ratchet/attention``. tokamax needs the extra ``peers``.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from typing import Any

from benchmarks.lib.attention.cases import PATTERNS, PEERS, SHAPES, TRAINING, attention_programs, sweep
from benchmarks.lib.cache import ProgramCache
from benchmarks.lib.command import command, say
from benchmarks.lib.table import show
from ratchet.tpu.chips import V5E

Recipe = dict[str, Any]
ALL_SHAPES = {**SHAPES, **TRAINING, **PATTERNS}
SWEPT = ("v5e", "v6e", "tpu7x")


def recipes_of(impl: str, name: str, *, grad: bool, chip: str = V5E.name, most: int | None = None) -> list[Recipe]:
    """What is tried of ``impl`` at a shape: ``most`` settings, or all."""
    configs = sweep(impl, name, grad=grad, chip=chip)[:most]
    return [ALL_SHAPES[name].program(impl, config, grad=grad, chip=chip) for config in configs]


def best(programs: ProgramCache, recipes: Sequence[Recipe]) -> tuple[Recipe, dict[str, Any]] | None:
    """The fastest of those that compiled."""
    known = [(recipe, programs.find(recipe) or {}) for recipe in recipes]
    timed = [(recipe, figures) for recipe, figures in known if "ms" in figures]
    return min(timed, key=lambda one: one[1]["ms"], default=None)


def row_of(name: str, impl: str, figures: dict[str, Any], *, grad: bool) -> dict[str, Any]:
    """One line of the table."""
    return {
        "shape": name,
        "impl": impl,
        "ms": figures["ms"],
        "MXU %": figures["mxu_pct"],
        "TFLOP/s": ALL_SHAPES[name].flops(grad=grad) / figures["ms"] * 1e-9,
        "VMEM MiB": figures["vmem_bytes"] / 2**20,
        "spills": figures["spill_stores"],
        "HBM MB": figures["hbm_moved_bytes"] / 1e6,
    }


def compared(
    programs: ProgramCache, name: str, *, grad: bool, chip: str, fill: bool, most: int | None = None
) -> dict[str, dict[str, Any]]:
    """The line of the table of each implementation that has the shape and compiled."""
    impls = ["ours", *(p for p in PEERS if p != "tokamax" or importlib.util.find_spec("tokamax"))]
    if name == "headline" and not grad and chip == V5E.name:
        impls = ["kernel.py", *impls]
    known = {}
    for impl in impls:
        recipes = recipes_of(impl, name, grad=grad, chip=chip, most=most)
        if fill:
            programs.fill(recipes, lambda line: say(f"{name}: {line}"))
        else:
            there = sum(programs.find(recipe) is not None for recipe in recipes)
            say(f"{name}: {impl}: {there} of {len(recipes)} settings are compiled")
        if chosen := best(programs, recipes):
            known[impl] = row_of(name, impl, chosen[1], grad=grad)
        elif recipes:
            say(f"{name}: {impl}: {(programs.find(recipes[0]) or {}).get('error', ''):.200}")
    return known


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--chip", choices=SWEPT, default=V5E.name)
    parser.add_argument("--grad", action="store_true", help="forward with backward")
    parser.add_argument("--training", action="store_true", help="layers of models")
    parser.add_argument("--only", nargs="*", choices=ALL_SHAPES, metavar="SHAPE")
    parser.add_argument("--settings", type=int, metavar="N", help="the first N settings of each")
    parser.add_argument("--compiled", action="store_true", help="leave out what is not compiled yet")
    options = parser.parse_args()
    names = options.only or list(TRAINING if options.training else SHAPES)
    grad, chip, patterns = options.grad, options.chip, ", ".join(name for name in names if name in PATTERNS)
    if patterns and chip != V5E.name:
        parser.error(f"{patterns}: compared on {V5E.name} alone, not on {chip}")
    if grad and patterns:
        parser.error(f"{patterns}: compared without --grad")
    rows, ratios = [], []
    for name in names:
        own = compared(
            attention_programs(), name, grad=grad, chip=chip, fill=not options.compiled, most=options.settings
        )
        rows += own.values()
        peers = [row["ms"] for impl, row in own.items() if impl in PEERS]
        if peers and "ours" in own:
            kernel = own["kernel.py"]["ms"] if "kernel.py" in own else math.inf
            ratios.append((name, min(peers) / own["ours"]["ms"], min(peers) / kernel))
    what = "forward and backward" if grad else "forward"
    show(f"attention {what}, modelled for {chip}", rows, json_file=options.json)
    for name, ratio, kernel in ratios:
        print(
            f"{name}: ours is {ratio:.3f} times faster than the best peer"
            + (f", kernel.py {kernel:.3f}" * (kernel > 0))
        )
    if len(ratios) > 1:
        mean = math.exp(sum(math.log(ratio) for _, ratio, _ in ratios) / len(ratios))
        print(f"geometric mean of {len(ratios)} shapes: {mean:.3f}")


if __name__ == "__main__":
    main()
