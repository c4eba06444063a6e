"""How far honest answers are from being refused, and subtly wrong ones from passing, for every kernel of the tests.

    python -m benchmarks.margins [NAME ...] [--secrets N] [--json FILE]

Nothing is compiled for a TPU: each kernel is executed as the judge executes it, on every kind of instance, for several
secrets. Numbers are errors over their allowance. An honest row shows the largest of all secrets and instances, for the
exact answer rounded once, for the reference in its own dtypes and for the kernel; a wrong row shows the largest of the
instances for the secret that is kindest to it. Between the two is 1; the gap is printed.
"""

from __future__ import annotations

import hashlib
import math
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib.command import command, say
from benchmarks.lib.programs import of_source, with_four_devices
from benchmarks.lib.sources import ROOT, names_of
from benchmarks.lib.table import show
from ratchet.exam.problem import deviations, instances, parity
from ratchet.exam.problem import problem as problems
from ratchet.exam.problem.inputs import Inputs, Instance
from ratchet.exam.problem.programs import Programs
from ratchet.exam.problem.reference import References
from ratchet.selftest import corpus
from ratchet.tpu.compiler.tokens import tokenise
from ratchet.tpu.mosaic import run as mosaic
from ratchet.values.status import Refusal
from tests.kernels import edited

CANDIDATES = ROOT / "tests" / "candidates"
REFUSED = 1e9
"""Of an answer that is refused by more than a number: NaN, a finding, a wrong integer."""


def wide(exact: Any) -> Any:
    """Floats as float64: those of 16-bit outputs are kept in float32."""
    return exact.astype(np.float64) if exact.dtype.kind == "f" else exact


class Asked:
    """One problem on several secrets: its instances are made once and serve the honest kernel and the wrong ones."""

    def __init__(self, problem: problems.Problem, secrets: int) -> None:
        self.problem = problem
        references = References(inputs := Inputs(Programs()))
        self.made: list[dict[str, tuple[Any, Any, Any, Any]]] = []
        self._natives: list[tuple[Any, Any, Any, bool]] = []
        """Per output of every instance: the native answer, the exact one, its loss as the analysis gives it, and
        whether its inputs are alike."""
        for number in range(secrets):
            secret = hashlib.sha256(b"margins" + bytes([number])).digest()
            made, folder = {}, tempfile.mkdtemp(prefix="margins-")
            for kind in instances.kinds_of(problem):
                instance = Instance(problem=problem, kind=kind, secret=secret, cache=Path(folder))
                reference, arrays = references.made(instance), inputs.of(instance)
                exact, losses, native = reference.exact, reference.losses, reference.native
                made[kind] = (arrays, exact, losses, native)
                derived = inputs.programs.exact(problem, arrays)[len(exact) :]
                unasked = [np.where(np.isinf(wide), np.inf, loss) for wide, loss in zip(losses, derived, strict=True)]
                alike = [kind == instances.SIGNED] * len(exact)
                self._natives += zip(native, exact, unasked, alike, strict=True)
            shutil.rmtree(folder)
            self.made.append(made)

    def rounded(self) -> float:
        """Of the exact answer rounded once: the largest."""
        dtypes = [np.dtype(spec.dtype) for spec in self.problem.outputs]
        return max(
            parity.compare(deviations.rounded(wide(e), d), e, s, alike=kind == instances.SIGNED).worst
            for one in self.made
            for kind, (_, exact, losses, _) in one.items()
            for e, s, d in zip(exact, losses, dtypes, strict=True)
        )

    def native(self) -> float:
        """Of the reference in its own dtypes: the largest, with losses that were not made larger for its sake."""
        return max(parity.compare(*three, alike=alike).worst for *three, alike in self._natives)

    def kernel(self, program: bytes) -> tuple[list[float], str]:
        """Of a kernel: per secret the largest, and which instance, output and criterion that is."""
        loaded, largest, where = mosaic.translated(tokenise(program)[0], mosaic.Options()), [], ""
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
                    parity.compare(*three, alike=kind == instances.SIGNED)
                    for own in (outputs, *result.replicas)
                    for three in zip(own, exact, losses, strict=True)
                ]
                for index, one_output in enumerate(compared):
                    reached = min(one_output.worst, REFUSED)
                    if reached > worst:
                        worst, where = reached, f"{kind} {index} {one_output.criterion}: {one_output.message}"
                if instances.is_probe(kind):
                    start = one["random"][1]
                    for index in range(len(outputs)):
                        if parity.insensitive(before[index], outputs[index], start[index], exact[index], losses[index]):
                            worst, where = REFUSED, f"{kind} {index} insensitive"
            largest.append(worst)
        return largest, where


def rows(names: Sequence[str], secrets: int) -> list[dict[str, Any]]:
    """One row a kernel. ``names`` are parts of names of honest kernels; all of them without any."""
    table: list[dict[str, Any]] = []
    variants = names_of((CANDIDATES / "wrong" / "variants.py").read_text())["VARIANTS"]
    for honest in corpus.read(ROOT).honest.values():
        if honest.on != corpus.MODEL or (names and not any(name in honest.name for name in names)):
            continue
        source = honest.source
        try:
            artefact, problem = of_source(source)
            assert problem is not None
            asked = Asked(problem, secrets)
            per_secret, where = asked.kernel(artefact.program)
        except Refusal as refusal:
            table.append(row(honest.name, "", math.inf, f"{refusal.status.name}: {refusal.message}"))
            continue
        table.append(row(honest.name, "", max(per_secret), where, rounded=asked.rounded(), native=asked.native()))
        for name, (of, edits) in variants.items():
            if of != honest.name:
                continue
            try:
                per_secret, where = asked.kernel(of_source(edited(source, *edits), freeze=False)[0].program)
            except Refusal as refusal:
                per_secret, where = [REFUSED], f"{refusal.status.name}: {refusal.message}"
            table.append(row(honest.name, name, min(per_secret), where))
    return table


def row(
    kernel: str, wrong: str, reached: float, where: str, *, rounded: float | None = None, native: float | None = None
) -> dict[str, Any]:
    """One line of the table, which is also reported at once."""
    say(f"{kernel} {wrong}: {reached:.3g}")
    known = {"kernel": kernel, "wrong": wrong, "rounded": rounded, "native": native}
    return {**known, "error / allowance": reached, "where": where}


def main() -> int:
    with_four_devices()
    parser = command(__doc__)
    parser.add_argument("names", nargs="*", help="parts of names of honest kernels (default: all)")
    parser.add_argument("--secrets", type=int, default=5, help="how many (default 5)")
    options = parser.parse_args()
    table = rows(options.names, options.secrets)
    short = [{**one, "where": one["where"].partition(":")[0]} for one in table]
    show("error over allowance, the limit is 1", short, json_file=options.json)
    honest = [one["error / allowance"] for one in table if not one["wrong"]]
    wrong = [one["error / allowance"] for one in table if one["wrong"]]
    print(f"honest kernels reach at most {max(honest, default=0):.3g}, wrong ones at least {min(wrong, default=0):.3g}")
    misjudged = [one for one in table if (one["error / allowance"] > 1) != bool(one["wrong"])]
    for one in misjudged:
        print(f"{'PASSED' if one['wrong'] else 'REFUSED'} {one['kernel']} {one['wrong']}: {one['where']}")
    return 1 if misjudged else 0


if __name__ == "__main__":
    sys.exit(main())
