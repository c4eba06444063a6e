"""What runs in the judge's environment for the pytest plugin: explains and executes exported programs, one a line."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ratchet.exam.candidate.target import newest_stablehlo
from ratchet.process.sandbox.child import Child
from ratchet.testing.judge import read, write
from ratchet.tpu import library
from ratchet.tpu.chips import CHIPS
from ratchet.tpu.compiler import compile as compiling
from ratchet.tpu.explain import explain_artefact
from ratchet.values import Explanation
from ratchet.values.status import Refusal, Status
from ratchet.view.explain import vmem_text


def main() -> int:
    """Answer what standard input asks, until it ends; answers go to what was standard output. Returns 0."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)  # nothing else may speak there
        print(json.dumps({"stablehlo": newest_stablehlo()}), file=out, flush=True)
        for line in sys.stdin:
            print(json.dumps(_answer(json.loads(line))), file=out, flush=True)
    return 0


def _answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    folder = Path(asked["folder"])
    try:
        program = (folder / "program").read_bytes()
        inputs = [read(folder / f"input{number}", one) for number, one in enumerate(asked["inputs"])]
        if asked["do"] == "execute":
            result = library.execute(program, *inputs)
            outputs = [write(folder / f"output{number}", one) for number, one in enumerate(result.outputs)]
            return {"findings": list(map(str, result.findings)), "outputs": outputs}
        return _described(_explained(program, inputs, asked["chip"], asked["jax"]))
    except Refusal as refusal:
        return {"refused": refusal.status.name, "message": refusal.message}
    except Exception as error:  # the tests go on, and say it
        return {"refused": Status.INTERNAL.name, "message": f"{type(error).__name__}: {error}"}


def _explained(program: bytes, inputs: Sequence[Any], chip: str, jax: str) -> Explanation:
    """Modelled, with those of the inputs that have values as what steers."""
    with tempfile.TemporaryDirectory(prefix="ratchet-") as work:
        child: Child
        with compiling.start(Path(work, "compiler"), CHIPS[chip], under=library.under(jax)) as child:
            return explain_artefact(
                library.artefact_of(program),
                CHIPS[chip],
                Path(work, "program"),
                child,
                steering=lambda compiled: library.steering(compiled, program, *inputs),
            )


def _described(one: Explanation) -> dict[str, Any]:
    """What the fixtures need of it, as JSON has it."""
    known: dict[str, Any] = {"status": one.status.name, "reason": one.reason, "vmem": vmem_text(one)}
    if one.timeline is None or one.band is None or one.footprint is None:
        return known
    return {
        **known,
        "latency_ms": one.timeline.latency_ms,
        "band_ms": [one.band.low_ms, one.band.high_ms],
        "compiler": one.compiler,
        "vmem_bytes": one.footprint.vmem_bytes,
        "spills": one.footprint.spill_stores + one.footprint.spill_loads,
    }
