"""From where on wrong answers to a large problem are refused: with some of its rows in float64, and with all.

    python -m benchmarks.sampled [FILE ...] [--kinds KIND,KIND] [--json FILE]

Of a large problem whose rows have nothing to do with each other the judge knows some in float64, and looks at others
where they stand out (``judge/rows.py``). Here the exact answer of each kernel file's problem is changed: by a common
factor, or by normal noise of so many losses, everywhere, in a few rows, or in the last ones. The smallest change that
is refused is looked for by halving, with all rows known and with some; ``rows`` is how many were compared in float64
there, of how many. Nothing is compiled for a TPU, and no kernel is executed: this is what the judge's comparison sees.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

from benchmarks.lib.command import command
from benchmarks.lib.programs import of_source
from benchmarks.lib.sources import ROOT
from benchmarks.lib.table import show
from ratchet.exam.judge.values_worker import Values
from ratchet.exam.problem import rows
from ratchet.exam.problem.inputs import Instance
from ratchet.values.status import Status

FILES = ("examples/naive_attention.py",)
KINDS = "random,mixed"
FEW, LAST = 400, 64
"""Of these many rows one is changed, and this share of them is the last."""
STEPS = 8
"""Halvings of the range in which the smallest change is: on a logarithmic scale, to four percent."""
RANGES = {"factor": (2.0**-16, 0.5), "noise": (2.0**-4, 2.0**10)}

Changed = Callable[[float], np.ndarray[Any, Any]]
"""The answer with a change of that size."""


def main() -> int:
    parser = command(__doc__)
    parser.add_argument("files", nargs="*", help=f"kernel files (default {' '.join(FILES)})")
    parser.add_argument("--kinds", default=KINDS, help=f"instances (default {KINDS})")
    options = parser.parse_args()
    table = []
    for file in options.files or FILES:
        _, problem = of_source((ROOT / file).read_text(), Path(file).name)
        assert problem is not None
        if not rows.are_sampled(problem):
            print(f"{file}: all rows of its problem are compared in float64", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as cache:
            for kind in options.kinds.split(","):
                some = Instance(problem=problem, kind=kind, secret=bytes(32), cache=Path(cache))
                table += [{"problem": Path(file).stem, "kind": kind, **row} for row in compared(some)]
    show("smallest change that is refused", table, json_file=options.json)
    return 0


def compared(some: Instance) -> list[dict[str, Any]]:
    """The rows of one instance; its first output is changed."""
    values, whole, found = Values(), replace(some, whole=True), []
    specs, exact = some.problem.outputs, values.comparer.references.of(whole).exact
    others = [array.astype(np.dtype(spec.dtype)) for array, spec in zip(exact[1:], specs[1:], strict=True)]

    def answer(one: Instance, first: np.ndarray[Any, Any]) -> dict[str, Any]:
        return values.comparer.outputs(one, [first, *others])

    for name, (unit, changed) in changes(values, whole).items():
        (at_all, _), (at_some, asked) = (smallest(partial(answer, one), changed, RANGES[unit]) for one in (whole, some))
        found.append(
            {
                "change": name,
                "all rows": at_all,
                "some": at_some,
                "some / all": at_some / at_all if at_some and at_all else None,
                "rows": asked,
                "of": rows.length(some.problem),
            }
        )
        print(f"{some.kind} {name}: {at_all}, {at_some} with {asked} rows", file=sys.stderr, flush=True)
    return found


def changes(values: Values, whole: Instance) -> dict[str, tuple[str, Changed]]:
    """By name what is changed, in which unit, and how."""
    reference, generator = values.comparer.references.of(whole), np.random.default_rng(0)
    exact, dtype = reference.exact[0].astype(np.float64), np.dtype(whole.problem.outputs[0].dtype)
    loss = np.where(np.isfinite(reference.losses[0]), reference.losses[0], 0.0)
    axis, count = rows.axes(whole.problem)[0], rows.length(whole.problem)
    noise = generator.normal(size=exact.shape) * loss
    along = np.arange(count).reshape([-1 if n == axis else 1 for n in range(exact.ndim)])
    few = np.isin(along, generator.choice(count, count // FEW, replace=False))
    return {
        "a common factor": ("factor", lambda size: (exact * (1 + size)).astype(dtype)),
        "losses everywhere": ("noise", lambda size: (exact + size * noise).astype(dtype)),
        f"losses in one row of {FEW}": ("noise", lambda size: (exact + size * noise * few).astype(dtype)),
        f"losses in the last of {LAST} parts": (
            "noise",
            lambda size: (exact + size * noise * (along >= count - count // LAST)).astype(dtype),
        ),
    }


def smallest(
    judged: Callable[[np.ndarray[Any, Any]], dict[str, Any]], changed: Changed, within: tuple[float, float]
) -> tuple[float | None, int]:
    """The smallest change that is refused, None if none is, and of how many rows that was found; 0: of all."""
    low, high = within
    refused, asked = None, 0
    for _ in range(STEPS):
        size = float(np.sqrt(low * high))
        answer = judged(changed(size))
        if answer["status"] == Status.PASS.name:
            low = size
        else:
            high = refused = size
            asked = answer.get("rows", 0)
    return refused, asked


if __name__ == "__main__":
    sys.exit(main())
