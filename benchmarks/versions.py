"""What crosses from another JAX, by what a kernel uses: the table of docs/your-repository.md.

    python -m benchmarks.versions PYTHON… [--json FILE]

Small kernels (``benchmarks/lib/crossing.py``), each with one thing more than a grid, are exported by each Python, and
executed for their values, compiled and modelled here. A cell is ``yes``, or where it ended and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ratchet
from benchmarks.lib import crossing
from benchmarks.lib.command import command, say
from benchmarks.lib.crossing import Feature
from benchmarks.lib.table import show_all
from ratchet.exam.candidate import target

FILE = Path(crossing.__file__)


def outcome(feature: Feature, python: str | None) -> tuple[str, str]:
    """JAX's version where it exported, and ``yes`` or what became of it."""
    draw = np.random.default_rng(0)
    arrays = [feature.draw(draw, shape, np.dtype(dtype)) for shape, dtype in feature.inputs]
    case = target.inline([f"{dtype}[{','.join(map(str, shape))}]" for shape, dtype in feature.inputs])
    version = step = ""
    try:
        made = target.export(target.parse(f"{FILE}:{feature.name}"), case, python=python)
        version, step = made.jax_version, "values: "
        result = ratchet.execute(made.program, *arrays)
        wanted = feature.reference(*arrays)
        if result.findings or not np.allclose(result.outputs[0].astype(np.float64), wanted, atol=feature.atol):
            return version, f"values: {next(iter(result.findings), 'wrong')}"
        step = "compiled: "
        program = ratchet.compile(made.program)
        step = "modelled: "
        ratchet.model(program, scalars=ratchet.steering(program, made.program, *arrays))
    except ratchet.Refusal as refusal:
        return version, f"{step}{refusal.status.name}: {' '.join(refusal.message.split())[:160]}"
    return version, "yes"


def table(pythons: Sequence[str | None]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A row for each feature, a column for each version; and every reason."""
    rows: list[dict[str, Any]] = [{"a kernel with": one.what} for one in crossing.FEATURES]
    reasons = []
    for python in pythons:
        found = [outcome(one, python) for one in crossing.FEATURES]
        version = next((version for version, _ in found if version), str(python))
        say(f"jax {version}: {sum(said == 'yes' for _, said in found)} of {len(found)}")
        for row, (_, said) in zip(rows, found, strict=True):
            row[version] = said.partition(":")[0] if said != "yes" else said
            reasons += [{"jax": version, "a kernel with": row["a kernel with"], "why": said}] * (said != "yes")
    return rows, reasons


def main() -> None:
    parser = command(__doc__)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", help="another Python, with its own JAX")
    options = parser.parse_args()
    rows, reasons = table([None, *options.pythons])
    show_all({f"judged with jax {jax.__version__}": rows, "why not": reasons}, json_file=options.json)


if __name__ == "__main__":
    main()
