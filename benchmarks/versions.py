"""What crosses from another JAX, as the table of docs/your-repository.md.

    python -m benchmarks.versions PYTHON… [--json FILE]

One small kernel, a softmax in blocks, is exported by each Python and then executed, compiled and modelled here.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import jax
import numpy as np

import ratchet
from benchmarks.lib.command import command
from ratchet.exam.candidate import target

KERNEL = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def normalise(x_ref, o_ref):
    x = x_ref[...]
    weights = jnp.exp(x - jnp.max(x, axis=1, keepdims=True))
    o_ref[...] = weights / jnp.sum(weights, axis=1, keepdims=True)


def softmax(x):
    rows = pl.BlockSpec((8, x.shape[1]), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(
        normalise, out_shape=shape, grid=(x.shape[0] // 8,), in_specs=[rows], out_specs=rows, name="softmax"
    )(x)
"""
STEPS = ("exported", "values", "compiled", "modelled")


def row(python: str | None, file: Path) -> tuple[str, ...]:
    """JAX's version, what became of each step, and the modelled latency."""
    x = np.random.default_rng(0).normal(size=(32, 256)).astype(np.float32)
    known, latency = "?", ""
    done: list[str] = []
    try:
        made = target.export(target.parse(f"{file}:softmax"), target.inline(["f32[32,256]"]), python=python)
        known = made.jax_version
        done.append("yes")
        result = ratchet.execute(made.program, x)
        right = np.allclose(np.asarray(result.outputs[0]), np.asarray(jax.nn.softmax(x, axis=1)), atol=1e-6)
        done.append("right" if right and not result.findings else "wrong")
        program = ratchet.compile(made.program)
        done.append("yes")
        latency = f"{ratchet.model(program).latency_ms:.7f} ms"
        done.append("yes")
    except ratchet.Refusal as refusal:
        done.append(f"{refusal.status.name}: {refusal.message:.80}")
    return known, *done, *[""] * (len(STEPS) - len(done)), latency


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", help="another Python, with its own JAX")
    options = parser.parse_args()
    head, rows = ("JAX", *STEPS, "latency"), []
    print(f"| {' | '.join(head)} |")
    print("|" + "---|" * len(head))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "crossing.py")
        file.write_text(KERNEL)
        for python in (None, *options.pythons):
            rows.append(row(python, file))
            print(f"| {' | '.join(rows[-1])} |", flush=True)
    if options.json:
        document = [dict(zip(head, one, strict=True)) for one in rows]
        options.json.write_text(json.dumps({"versions": document}, indent=1) + "\n")


if __name__ == "__main__":
    main()
