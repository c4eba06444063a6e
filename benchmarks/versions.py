"""What crosses from another JAX, as the table of docs/your-repository.md.

    python -m benchmarks.versions PYTHON… [--json FILE]

One small kernel, the softmax of `examples/first.py`, is exported by each Python, and executed, compiled and modelled
here.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import jax
import numpy as np

import ratchet
from benchmarks.lib.command import command
from benchmarks.lib.sources import ROOT
from ratchet.exam.candidate import target

KERNEL = (ROOT / "examples" / "first.py").read_text().replace("ROWS, WIDTH = 256, 1024", "ROWS, WIDTH = 32, 256")
STEPS = ("exported", "values", "compiled", "modelled")


def row(python: str | None, file: Path) -> dict[str, str]:
    """JAX's version, what became of each step, and the modelled latency."""
    x = np.random.default_rng(0).normal(size=(32, 256)).astype(np.float32)
    known = {"JAX": "?"} | dict.fromkeys((*STEPS, "latency"), "")
    steps = iter(STEPS)
    step = next(steps)
    try:
        made = target.export(target.parse(f"{file}:kernel_fn"), target.inline(["f32[32,256]"]), python=python)
        known["JAX"], known[step], step = made.jax_version, "yes", next(steps)
        result = ratchet.execute(made.program, x)
        right = np.allclose(np.asarray(result.outputs[0]), np.asarray(jax.nn.softmax(x, axis=1)), atol=1e-6)
        known[step], step = "right" if right and not result.findings else "wrong", next(steps)
        program = ratchet.compile(made.program)
        known[step], step = "yes", next(steps)
        known["latency"] = f"{ratchet.model(program).latency_ms:.7f} ms"
        known[step] = "yes"
    except ratchet.Refusal as refusal:
        known[step] = f"{refusal.status.name}: {refusal.message:.80}"
    return known


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", help="another Python, with its own JAX")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "crossing.py")
        file.write_text(KERNEL)
        for python in (None, *options.pythons):
            rows.append(row(python, file))
            heads = [] if len(rows) > 1 else [rows[0].keys(), ["---"] * len(rows[0])]
            for cells in (*heads, rows[-1].values()):
                print(f"| {' | '.join(cells)} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"versions": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
