"""Finds blocks for the shapes that training uses and writes them to ``pallas_flash/tuned.json``.

    python -m benchmarks.tune [--chip NAME] [--seq N ...] [--dim N ...] [--show] [--json FILE]

The blocks of one chip; v5e by default. One head of self-attention, causal and not; the forward pass alone and the
backward pass with it, as *modelled* by the schedule machine. Entries of other shapes stay as they are if evaluator and
compiler are the same. ``--show`` prints the table that is there.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

from benchmarks.lib.attention.cases import Shape, attention_programs, backward_blocks, forward_blocks, ours_forward
from benchmarks.lib.cache import ProgramCache
from benchmarks.lib.command import command, say
from benchmarks.lib.sources import ROOT
from benchmarks.lib.table import show
from ratchet.tpu.chips import CHIPS, V5E
from ratchet.tpu.compiler.environment import compiler_version

TABLE = ROOT / "pallas_flash" / "tuned.json"
LENGTHS = (2048, 4096, 8192, 16384, 32768)
DIMS = (64, 128, 256)
DIRECTIONS = ("forward", "backward")
RUNNERS_UP = 3
PLAIN = forward_blocks(512, 1)


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


def entry_of(programs: ProgramCache, direction: str, *, chip: str, seq: int, dim: int, causal: bool) -> dict[str, Any]:
    """One sweep, best first."""
    tried = candidates(direction, chip=chip, seq=seq, dim=dim)
    recipes = [recipe_of(direction, one, chip=chip, seq=seq, dim=dim, causal=causal) for one in tried]
    name = f"{chip} {direction} {seq} x {dim}{' causal' if causal else ''}"
    records = programs.made(recipes, lambda line: say(f"{name}: {line}"))
    timed = [
        {"blocks": one, "kernel_ms": round(sum(ms for op, ms in figures["ops"] if f"flash_{direction}" in op), 5)}
        for one, figures in zip(tried, records, strict=True)
        if "ms" in figures
    ]
    timed.sort(key=lambda one: one["kernel_ms"])
    return {"direction": direction, "seq": seq, "dim": dim, "causal": causal, "best": timed[: 1 + RUNNERS_UP]}


def text_of(tables: dict[str, Any]) -> str:
    """The tables as JSON, one sweep a line."""
    parts = []
    for chip, table in tables.items():
        entries = ",\n".join(f"  {json.dumps(entry)}" for entry in table["entries"])
        made_by = ", ".join(f"{json.dumps(name)}: {json.dumps(table[name])}" for name in table if name != "entries")
        parts.append(f'{json.dumps(chip)}: {{{made_by}, "entries": [\n{entries}\n]}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("--chip", choices=CHIPS, default=V5E.name)
    parser.add_argument("--seq", type=int, nargs="*", default=LENGTHS)
    parser.add_argument("--dim", type=int, nargs="*", default=DIMS)
    parser.add_argument("--causal", type=json.loads, nargs="*", default=(True, False), metavar="true|false")
    parser.add_argument("--directions", nargs="*", choices=DIRECTIONS, default=DIRECTIONS)
    parser.add_argument("--show", action="store_true", help="print what is there and stop")
    options = parser.parse_args()
    chip = options.chip
    made_by = {"evaluator": f"{chip}-model", "compiler": compiler_version()}
    whole = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    table = whole.get(chip, {**made_by, "entries": []})
    if not options.show:
        if {name: table[name] for name in made_by} != made_by:
            table = {**made_by, "entries": []}
        programs = attention_programs()
        for seq, dim, causal, direction in itertools.product(
            options.seq, options.dim, options.causal, options.directions
        ):
            key = {"direction": direction, "seq": seq, "dim": dim, "causal": causal}
            others = [one for one in table["entries"] if any(one[name] != value for name, value in key.items())]
            entry = entry_of(programs, chip=chip, **key)
            table["entries"] = sorted(
                [*others, *([entry] if entry["best"] else [])],
                key=lambda one: (one["direction"], not one["causal"], one["dim"], one["seq"]),
            )
            TABLE.write_text(text_of({**whole, chip: table}))
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
