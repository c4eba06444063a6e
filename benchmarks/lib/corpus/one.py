"""The child of ``benchmarks.coverage``: one public kernel compiled, executed and modelled.

    python -m benchmarks.lib.corpus.one NAME SOURCES

It prints one line of JSON: an :class:`Outcome`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ratchet
from benchmarks.lib.corpus.case import Call
from benchmarks.lib.corpus.listed import CASES, REPOSITORIES
from benchmarks.lib.corpus.repositories import enter
from ratchet.tpu.exporting import for_tpu, in_one_line


@dataclasses.dataclass(kw_only=True)
class Outcome:
    """What became of one kernel. A step that was not reached is empty."""

    name: str
    traced: str = ""
    """``yes``, or the name of the refusal, as of the other steps."""
    compiled: str = ""
    executed: str = ""
    values: str = ""
    """``right``, ``wrong``, ``finding`` where they are chance on a TPU, or ``not compared``."""
    compared_with: str = ""
    """``reference`` or ``interpreter``."""
    error: float | None = None
    """Largest error over the largest value of an output."""
    modelled: str = ""
    latency_ms: float | None = None
    operations: list[str] = dataclasses.field(default_factory=list)
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    """Why a step refused, by step."""
    seconds: float = 0.0


def outcome(name: str, sources: Path) -> Outcome:
    """Take one kernel of the list through all steps."""
    made = Outcome(name=name)
    begun = time.perf_counter()
    try:
        entry = CASES[name]
        enter(REPOSITORIES[entry.repository], sources, entry.repository)
        with jax.default_device(jax.devices("cpu")[0]):
            call = entry.call()
        program = ratchet.export(call.function, *call.arrays)
        made.traced = "yes"
    except ratchet.Refusal as refusal:
        _refused(made, "traced", refusal)
        return made
    except Exception as error:  # another's Python may raise anything
        made.traced, made.reasons["traced"] = "NOT_CALLED", in_one_line(error)
        traceback.print_exc()
        return made
    compiled = _step(made, "compiled", lambda: ratchet.compile(program))
    if compiled is not None:
        _values(made, call, program)
        timeline = _step(
            made, "modelled", lambda: ratchet.model(compiled, scalars=ratchet.steering(compiled, program, *call.arrays))
        )
        made.latency_ms = timeline.latency_ms if timeline is not None else None
    made.seconds = time.perf_counter() - begun
    return made


def _values(made: Outcome, call: Call, program: bytes) -> None:
    result = _step(made, "executed", lambda: ratchet.execute(program, *jax.tree.leaves(call.arrays)))
    if result is None:
        return
    if result.findings:
        made.values, made.reasons["values"] = "finding", str(result.findings[0])
        return
    try:
        made.compared_with = "reference" if call.reference else "interpreter"
        wanted = wanted_of(call)
    except Exception as error:  # of another's reference, or of the interpreter
        made.values, made.reasons["values"] = "not compared", in_one_line(error)
        return
    made.error = largest_error(result.outputs, wanted)
    made.values = "right" if made.error <= call.tolerance else "wrong"


def wanted_of(call: Call) -> list[np.ndarray]:
    """The reference's outputs, or those of Pallas's interpreter for TPU kernels."""
    from jax.experimental.pallas import tpu as pltpu

    with jax.default_device(jax.devices("cpu")[0]):
        if call.reference is not None:
            return [np.asarray(leaf) for leaf in jax.tree.leaves(call.reference(*call.arrays))]
        with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams(uninitialized_memory="zero")):
            with for_tpu():
                traced = jax.jit(call.function).trace(*call.arrays)
            run = traced.lower(lowering_platforms=("cpu",)).compile()
            return [np.asarray(leaf) for leaf in jax.tree.leaves(run(*call.arrays))]


def largest_error(outputs: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """Largest error of any output over its largest value; what is not finite has to be the same."""
    worst = 0.0
    for got, right in zip(outputs, wanted, strict=True):
        wide, exact = got.astype(np.float64), right.astype(np.float64)
        if wide.shape != exact.shape:
            return float("inf")
        finite = np.isfinite(exact)
        if not np.array_equal(wide[~finite], exact[~finite], equal_nan=True) or not np.isfinite(wide[finite]).all():
            return float("inf")
        if finite.any():
            scale = max(float(np.abs(exact[finite]).max()), 1e-30)
            worst = max(worst, float(np.abs(wide[finite] - exact[finite]).max()) / scale)
    return worst


def _step(made: Outcome, step: str, work: Callable[[], Any]) -> Any:
    try:
        result = work()
    except ratchet.Refusal as refusal:
        _refused(made, step, refusal)
        return None
    except Exception as error:  # a fault of ours: it is counted as one
        setattr(made, step, "INTERNAL")
        made.reasons[step] = in_one_line(error)
        traceback.print_exc()
        return None
    setattr(made, step, "yes")
    return result


def _refused(made: Outcome, step: str, refusal: ratchet.Refusal) -> None:
    setattr(made, step, refusal.status.name)
    made.reasons[step] = refusal.message


if __name__ == "__main__":
    folder = Path(sys.argv[2]).resolve()
    print(json.dumps(dataclasses.asdict(outcome(sys.argv[1], folder))).replace(f"{folder}/", ""))
