"""How far honest answers are from being refused, and subtly wrong ones from passing, for every kernel of the tests.

    python -m benchmarks.margins [NAME ...] [--secrets N] [--json FILE]

Nothing is compiled for a TPU: each kernel is executed as the judge executes it, on every kind of instance, for several
secrets. Numbers are errors over their allowance. An honest row shows the largest of all secrets and instances, for the
exact answer rounded once, for the reference in its own dtypes and for the kernel; a wrong row shows the largest of the
instances for the secret that is kindest to it. Between the two is 1; the gap is printed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = " ".join(
    [os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=4"]
)  # as the judge's child has them

import numpy as np

from benchmarks.lib.programs import of_source
from benchmarks.lib.table import show
from ratchet.candidate import problem as problems
from ratchet.judge import instances, parity
from ratchet.judge.values_worker import Values
from ratchet.mosaic import run as mosaic
from ratchet.values.status import Refusal

CANDIDATES = Path(__file__).parent.parent / "tests" / "candidates"
REFUSED = 1e9
"""Of an answer that is refused by more than a number: NaN, a finding, a wrong integer."""


def variants() -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """The wrong ones: name -> (honest file, edits)."""
    path = CANDIDATES / "wrong" / "variants.py"
    spec = importlib.util.spec_from_file_location("variants", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.VARIANTS)


def edited(source: str, edits: Sequence[tuple[str, str]]) -> str:
    """``source`` with each (old, new) replaced."""
    for old, new in edits:
        if old not in source:
            raise SystemExit(f"nothing to replace: {old!r}")
        source = source.replace(old, new)
    return source


class Asked:
    """One problem on several secrets: its instances are made once and serve the honest kernel and the wrong ones."""

    def __init__(self, problem: problems.Problem, secrets: int) -> None:
        self.problem, self._values, self.refused = problem, Values(), ""
        self.made: list[dict[str, tuple[Any, Any, Any, Any]]] = []
        for number in range(secrets):
            secret = hashlib.sha256(b"margins" + bytes([number])).digest()
            made = {}
            for kind in instances.kinds(problem.mesh):
                exact, losses = self._values.made(problem, kind, secret)
                arrays = self._values.inputs(problem, kind, secret)
                native = self._values._call(problem.reference_program, arrays)
                made[kind] = (arrays, exact, losses, native)
            self.made.append(made)

    def rounded(self) -> float:
        """Of the exact answer rounded once: the largest."""
        dtypes = [np.dtype(spec.dtype) for spec in self.problem.outputs]
        return max(
            parity.compare(parity.rounded(e, d), e, s).worst
            for one in self.made
            for _, exact, losses, _ in one.values()
            for e, s, d in zip(exact, losses, dtypes, strict=True)
        )

    def native(self) -> tuple[float, float]:
        """Of the reference in its own dtypes: the largest, and by how much the losses were widened for it at most."""
        worst = wider = 0.0
        for one in self.made:
            for _, exact, losses, native in one.values():
                for three in zip(native, exact, losses, strict=True):
                    worst = max(worst, parity.compare(*three).worst)
        return worst, wider

    def kernel(self, program: bytes) -> tuple[list[float], str]:
        """Of a kernel: per secret the largest, and which instance, output and criterion that is."""
        loaded, found, where = mosaic.load(program), [], ""
        for one in self.made:
            worst = -1.0
            before: list[Any] = []
            for kind, (arrays, exact, losses, _) in one.items():
                result = loaded.run(arrays)
                if result.findings:
                    return [REFUSED] * len(self.made), str(result.findings[0])
                outputs = [np.asarray(a) for a in result.outputs]
                if kind == "random":
                    before = outputs
                compared = [
                    parity.compare(*three)
                    for own in (outputs, *result.replicas)
                    for three in zip(own, exact, losses, strict=True)
                ]
                for index, one_output in enumerate(compared):
                    reached = min(one_output.worst, REFUSED)
                    if reached > worst:
                        worst, where = reached, f"{kind} {index} {one_output.criterion}: {one_output.message}"
                if kind.startswith("probe"):
                    start = one["random"][1]
                    for index in range(len(outputs)):
                        if parity.insensitive(before[index], outputs[index], start[index], exact[index], losses[index]):
                            worst, where = REFUSED, f"{kind} {index} insensitive"
            found.append(worst)
        return found, where


def rows(names: Sequence[str], secrets: int) -> list[dict[str, Any]]:
    """One row a kernel. ``names`` are parts of names of honest kernels; all of them without any."""
    found: list[dict[str, Any]] = []
    wrong = variants()
    for path in sorted((CANDIDATES / "honest").glob("*.py")):
        if names and not any(name in path.stem for name in names):
            continue
        start, source = time.monotonic(), path.read_text()
        row: dict[str, Any] = {"kernel": path.stem, "wrong": "", "rounded": None, "native": None}
        try:
            artefact, problem = of_source(source)
            assert problem is not None
            asked = Asked(problem, secrets)
            row["rounded"], row["native"] = asked.rounded(), asked.native()[0]
            per_secret, where = asked.kernel(artefact.program)
            row |= {"error / allowance": max(per_secret), "where": where}
        except Refusal as refusal:
            found.append(row | {"error / allowance": math.inf, "where": f"{refusal.status.name}: {refusal.message}"})
            continue
        found.append(row | {"seconds": time.monotonic() - start})
        _report(found[-1])
        for name, (of, edits) in wrong.items():
            if of != path.stem:
                continue
            try:
                spoiled, _ = of_source(edited(source, edits), freeze=False)
                per_secret, where = asked.kernel(spoiled.program)
            except Refusal as refusal:
                per_secret, where = [REFUSED], f"{refusal.status.name}: {refusal.message}"
            entry = {"kernel": path.stem, "wrong": name, "rounded": None, "native": None}
            found.append(entry | {"error / allowance": min(per_secret), "where": where, "seconds": None})
            _report(found[-1])
    return found


def _report(row: dict[str, Any]) -> None:
    print(f"{row['kernel']} {row['wrong']}: {row['error / allowance']:.3g}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names of honest kernels (default: all)")
    parser.add_argument("--secrets", type=int, default=5, help="how many (default 5)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = rows(options.names, options.secrets)
    shown = [
        {key: row.get(key) for key in ("kernel", "wrong", "rounded", "native", "error / allowance")} for row in found
    ]
    for row, entry in zip(found, shown, strict=True):
        entry["criterion"] = str(row.get("where", "")).partition(":")[0]
    show("error over allowance, the limit is 1", shown, json_file=options.json)
    honest = [row["error / allowance"] for row in found if not row["wrong"]]
    spoiled = [row["error / allowance"] for row in found if row["wrong"]]
    print(
        f"honest kernels reach at most {max(honest, default=0):.3g}, wrong ones at least {min(spoiled, default=0):.3g}"
    )
    refused = [row for row in found if not row["wrong"] and row["error / allowance"] > 1]
    passed = [row for row in found if row["wrong"] and row["error / allowance"] <= 1]
    for row in refused:
        print(f"REFUSED {row['kernel']}: {row['where']}")
    for row in passed:
        print(f"PASSED {row['kernel']} {row['wrong']}: {row['where']}")
    return 1 if refused or passed else 0


if __name__ == "__main__":
    sys.exit(main())
