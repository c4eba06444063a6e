"""Attention side by side at seven shapes: ours, jax's, tokamax's and plain XLA's.

    python -m benchmarks.attention [--grad] [--only SHAPE ...] [--sweep] [--json FILE]

Whole programs from public operands to output, compiled for TPU v5e by the same compiler and *modelled* by the same
machine; each implementation with the best of its block sweep (``--sweep`` prints every point). ``--grad`` compares the
forward pass with the backward one. Compiled figures are kept in ``.ratchet/attention``. tokamax needs the extra
``peers``.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.lib.attention.cases import PEERS, SEQ, SHAPES, sweep
from benchmarks.lib.attention.kept import attention_programs
from benchmarks.lib.cache import ProgramCache
from benchmarks.lib.command import command
from benchmarks.lib.table import show
from ratchet.chips import V5E

Recipe = dict[str, Any]


def recipes_of(impl: str, name: str, *, grad: bool) -> list[Recipe]:
    """What is tried of ``impl`` at a shape."""
    return [SHAPES[name].program(impl, config, grad=grad) for config in sweep(impl, name, grad=grad)]


def best(programs: ProgramCache, recipes: Sequence[Recipe]) -> tuple[Recipe, dict[str, Any]] | None:
    """The fastest of those that compiled."""
    known = [(recipe, programs.find(recipe) or {}) for recipe in recipes]
    timed = [(recipe, figures) for recipe, figures in known if "ms" in figures]
    return min(timed, key=lambda one: one[1]["ms"], default=None)


def row_of(name: str, impl: str, figures: dict[str, Any], error: dict[str, Any], *, grad: bool) -> dict[str, Any]:
    """One line of the table."""
    flops = SHAPES[name].flops(grad=grad)
    return {
        "shape": name,
        "impl": impl,
        "ms": round(figures["ms"], 4),
        "MXU %": round(figures["mxu_pct"], 1),
        "TFLOP/s": round(flops / figures["ms"] * 1e-9, 1),
        "VMEM MiB": round(figures["vmem_bytes"] / 2**20, 1),
        "spills": figures["spill_stores"],
        "HBM MB": round(figures["hbm_moved_bytes"] / 1e6, 1),
        "rms error": f"{error['rms']:.1e}" if "rms" in error else "",
    }


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--grad", action="store_true", help="forward with backward")
    parser.add_argument("--only", nargs="*", choices=SHAPES, default=list(SHAPES), metavar="SHAPE")
    parser.add_argument("--sweep", action="store_true", help="print every point of the sweeps")
    options = parser.parse_args()
    programs, grad = attention_programs(), options.grad
    impls = ["ours", *(p for p in PEERS if p != "tokamax" or importlib.util.find_spec("tokamax"))]
    rows, ratios = [], []
    for name in options.only:
        compared = ["kernel.py", *impls] if name == "headline" and not grad else impls
        latencies: dict[str, float] = {}
        for impl in compared:
            recipes = recipes_of(impl, name, grad=grad)
            programs.fill(recipes, lambda line, name=name: print(f"{name}: {line}", file=sys.stderr))  # type: ignore[misc]
            if options.sweep:
                for recipe in recipes:
                    figures = programs.find(recipe) or {}
                    print(f"{name:12} {impl:9} {figures.get('ms', figures.get('error', ''))!s:.60} {recipe['config']}")
            chosen = best(programs, recipes)
            if chosen is None:
                print(f"{name}: {impl}: {(programs.find(recipes[0]) or {}).get('error', '')[:200]}", file=sys.stderr)
                continue
            recipe, figures = chosen
            values: Recipe = {**recipe, "values": True}
            if impl != "kernel.py":  # one shape only, which the judge compares
                programs.fill([values], lambda _line: None)
            rows.append(row_of(name, impl, figures, programs.find(values) or {}, grad=grad))
            latencies[impl] = figures["ms"]
        peers = [ms for impl, ms in latencies.items() if impl in PEERS]
        if peers and "ours" in latencies:
            ratios.append((name, min(peers) / latencies["ours"], min(peers) / latencies.get("kernel.py", math.inf)))
    what = "forward and backward" if grad else "forward"
    title = f"attention {what}, modelled for {V5E.name}; rms error to float64: one key head, at most {SEQ} keys"
    show(title, rows, json_file=options.json)
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
