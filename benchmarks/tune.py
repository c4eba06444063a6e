"""Finds blocks of attention for a chip, writes them to ``pallas_flash/tuned.json``, and checks them at other shapes.

    python -m benchmarks.tune [--chip NAME] [--seq N ...] [--dim N ...] [--directions NAME ...] [--show | --check]
                              [--only SHAPE ...] [--json FILE]

One head of self-attention, causal and not; the forward pass alone and the backward pass with it, as *modelled* by the
schedule machine. Entries of other shapes stay as they are if evaluator and compiler are the same. ``--show`` prints the
table that is there. ``--check`` compiles the shapes of ``benchmarks.attention``, layers of models and one more with the
blocks that the table gives them and with all that are tried, and prints how far each is from its own best.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from typing import Any

from benchmarks.lib.attention.cases import (
    ODD,
    SHAPES,
    TRAINING,
    Config,
    Shape,
    attention_programs,
    backward_blocks,
    forward_blocks,
    ours_at,
    ours_forward,
)
from benchmarks.lib.cache import ProgramCache
from benchmarks.lib.command import command, say
from benchmarks.lib.sources import ROOT
from benchmarks.lib.table import show
from pallas_flash.tuned import nearest
from ratchet.tpu.chips import CHIPS, V5E
from ratchet.tpu.compiler.environment import compiler_version

TABLE = ROOT / "pallas_flash" / "tuned.json"
LENGTHS = (8192,)
DIMS = (64, 128, 256)
DIRECTIONS = ("forward", "backward")
RUNNERS_UP = 3
PLAIN = forward_blocks(512, 1)
CHECKED = {**TRAINING, **SHAPES, **ODD}


def candidates(direction: str, *, chip: str, seq: int, dim: int) -> Sequence[dict[str, int]]:
    """The blocks that are tried: those no longer than the sequence."""
    if direction == "backward":
        return backward_blocks(dim)
    return [config["forward"] for config in ours_forward(chip) if config["forward"]["block_q"] <= seq]


def recipe_of(direction: str, tried: dict[str, int], *, chip: str, seq: int, dim: int, causal: bool) -> dict[str, Any]:
    """The program that is timed; with the backward pass, the forward pass has plain blocks."""
    shape = Shape(batch=1, heads=1, kv_heads=1, seq=seq, dim=dim, causal=causal)
    config = {"forward": tried} if direction == "forward" else {"forward": PLAIN, "backward": tried}
    return shape.program("ours", config, grad=direction == "backward", chip=chip)


def kernel_ms(figures: dict[str, Any], direction: str) -> float:
    """What the kernel of one direction takes of a program."""
    return round(sum(ms for op, ms in figures["ops"] if f"flash_{direction}" in op), 5)


def entry_of(programs: ProgramCache, direction: str, *, chip: str, seq: int, dim: int, causal: bool) -> dict[str, Any]:
    """One sweep, best first."""
    tried = candidates(direction, chip=chip, seq=seq, dim=dim)
    recipes = [recipe_of(direction, one, chip=chip, seq=seq, dim=dim, causal=causal) for one in tried]
    name = f"{chip} {direction} {seq} x {dim}{' causal' if causal else ''}"
    records = programs.made(recipes, lambda line: say(f"{name}: {line}"))
    timed = [
        {"blocks": one, "kernel_ms": kernel_ms(figures, direction)}
        for one, figures in zip(tried, records, strict=True)
        if "ms" in figures
    ]
    timed.sort(key=lambda one: one["kernel_ms"])
    return {"direction": direction, "seq": seq, "dim": dim, "causal": causal, "best": timed[: 1 + RUNNERS_UP]}


def chosen(shape: Shape, direction: str, chip: str) -> Config:
    """What the table gives a shape, beside the first forward blocks that are tried with the backward pass."""
    entry = nearest(direction, chip=chip, dim=shape.dim, seq=shape.seq, causal=shape.causal)
    grad = direction == "backward"
    forward = ours_at(shape, chip, grad=grad)[0] if grad else {}
    return {**forward, direction: entry["best"][0]["blocks"] if entry else {}}


def checked(programs: ProgramCache, name: str, direction: str, chip: str) -> dict[str, Any]:
    """A shape with the blocks of the table beside the best of those that are tried."""
    shape, grad = CHECKED[name], direction == "backward"
    config = chosen(shape, direction, chip)
    configs = [config, *(one for one in ours_at(shape, chip, grad=grad) if one != config)]
    recipes = [shape.program("ours", one, grad=grad, chip=chip) for one in configs]
    records = programs.made(recipes, lambda line: say(f"{chip} {direction} {name}: {line}"))
    if "ms" not in records[0]:
        raise RuntimeError(f"{name} has no time with the blocks of the table: {records[0].get('error', '')}")
    times = [kernel_ms(figures, direction) for figures in records if "ms" in figures]
    return {
        "shape": name,
        "direction": direction,
        "tried": len(times),
        "table's ms": times[0],
        "best ms": min(times),
        "more %": 100 * (times[0] / min(times) - 1),
    }


def text_of(tables: dict[str, Any]) -> str:
    """The tables as JSON, one sweep a line."""
    parts = []
    for chip, table in tables.items():
        entries = ",\n".join(f"  {json.dumps(entry)}" for entry in table["entries"])
        made_by = ", ".join(f"{json.dumps(name)}: {json.dumps(table[name])}" for name in table if name != "entries")
        parts.append(f'{json.dumps(chip)}: {{{made_by}, "entries": [\n{entries}\n]}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def tune(options: argparse.Namespace) -> None:
    """Sweep the shapes that were asked for, and write each entry as it comes."""
    made_by = {"evaluator": f"{options.chip}-model", "compiler": compiler_version()}
    whole = json.loads(TABLE.read_text())
    table = whole.get(options.chip, {**made_by, "entries": []})
    if {name: table[name] for name in made_by} != made_by:
        table = {**made_by, "entries": []}
    programs = attention_programs()
    for seq, dim, causal, direction in itertools.product(options.seq, options.dim, options.causal, options.directions):
        key = {"direction": direction, "seq": seq, "dim": dim, "causal": causal}
        others = [one for one in table["entries"] if any(one[name] != value for name, value in key.items())]
        entry = entry_of(programs, chip=options.chip, **key)
        table["entries"] = sorted(
            [*others, *([entry] if entry["best"] else [])],
            key=lambda one: (one["direction"], not one["causal"], one["dim"], one["seq"]),
        )
        TABLE.write_text(text_of({**whole, options.chip: table}))


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--chip", choices=CHIPS, default=V5E.name)
    parser.add_argument("--seq", type=int, nargs="*", default=LENGTHS)
    parser.add_argument("--dim", type=int, nargs="*", default=DIMS)
    parser.add_argument("--causal", type=json.loads, nargs="*", default=(True, False), metavar="true|false")
    parser.add_argument("--directions", nargs="*", choices=DIRECTIONS, default=DIRECTIONS)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--show", action="store_true", help="print what is there and stop")
    instead.add_argument("--check", action="store_true", help="compare what is there with the best at other shapes")
    parser.add_argument("--only", nargs="*", choices=CHECKED, metavar="SHAPE", help="with --check: these shapes")
    options = parser.parse_args()
    chip = options.chip
    if options.check:
        programs, names = attention_programs(), options.only or CHECKED
        rows = [checked(programs, name, way, chip) for way in options.directions for name in names]
        show(f"blocks of the table beside the best that were tried, {chip}", rows, json_file=options.json)
        print(f"at most {max(row['more %'] for row in rows):.1f} % more than the best, at {len(rows)} shapes and ways")
        return
    if not options.show:
        tune(options)
    table = json.loads(TABLE.read_text()).get(chip)
    if table is None:
        parser.error(f"nothing was tuned for {chip}: leave out --show")
    rows = [
        {
            **{name: one[name] for name in ("direction", "seq", "dim", "causal")},
            "kernel ms": one["best"][0]["kernel_ms"],
            "blocks": " ".join(f"{name} {value}" for name, value in one["best"][0]["blocks"].items()),
            "runners-up ms": " ".join(f"{other['kernel_ms']:.4f}" for other in one["best"][1:]),
        }
        for one in table["entries"]
    ]
    title = f"best blocks by {table['evaluator']} on {chip}, {table['compiler']}"
    show(title, rows, json_file=options.json)


if __name__ == "__main__":
    main()
