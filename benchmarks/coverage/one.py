"""The child of ``benchmarks.coverage``: one public kernel compiled, executed and modelled.

    python -m benchmarks.coverage.one NAME SOURCES

It prints one line of JSON: an :class:`Outcome`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ratchet
from benchmarks.coverage.calls import CASES, Call
from benchmarks.lib.programs import largest_error
from benchmarks.lib.repositories import module_of
from ratchet.tpu.exporting import for_tpu, in_one_line

MOST_DEVICES = 8
"""Of a slice: as many must this process have, to execute what runs on one."""


@dataclasses.dataclass(kw_only=True)
class Outcome:
    """What became of one kernel. A step that was not reached is empty."""

    name: str
    chips: str = ""
    """``v5e``; on a slice, with its axes: ``v5e x=8``."""
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
    vmem_bytes: int | None = None
    spills: int | None = None
    copied_bytes: int | None = None
    """By copies that XLA inserted."""
    operations: list[str] = dataclasses.field(default_factory=list)
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    """Why a step refused, by step."""
    seconds: float = 0.0


def outcome(name: str, sources: Path) -> Outcome:
    """Take one kernel of the list through all steps."""
    entry = CASES[name]
    try:
        module = module_of(entry.repository, entry.path, sources)
        with jax.default_device(jax.devices("cpu")[0]):
            call = entry.call(module)
    except Exception as error:  # another's Python may raise anything
        made = Outcome(name=name)
        _failed(made, "traced", error, other="NOT_CALLED")
        return made
    return taken(name, call)


def taken(name: str, call: Call) -> Outcome:
    """Take a call through all steps."""
    made = Outcome(name=name, chips=" ".join([call.chip, *(f"{axis}={size}" for axis, size in call.mesh.items())]))
    begun = time.perf_counter()
    try:
        program = ratchet.export(call.function, *call.arrays, **call.where)
        made.traced = "yes"
    except Exception as error:
        _failed(made, "traced", error, other="NOT_CALLED")
        return made
    compiled = _step(made, "compiled", lambda: ratchet.compile(program, **call.where))
    if compiled is not None:
        made.vmem_bytes, made.spills = compiled.footprint.vmem_bytes, compiled.footprint.spills
        made.copied_bytes = sum(copy.size_bytes for copy in compiled.copies if copy.injected)
        _values(made, call, program)
        steering = dict if call.mesh else functools.partial(ratchet.steering, compiled, program, *call.arrays)
        timeline = _step(made, "modelled", lambda: ratchet.model(compiled, scalars=steering()))
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
    if call.check is not None:
        made.compared_with, made.values = "test", "right"
        try:
            call.check()
        except AssertionError as error:
            made.values, made.reasons["values"] = "wrong", in_one_line(error)
        except Exception as error:  # of another's test, or a finding of a later call of it
            made.values, made.reasons["values"] = "not compared", in_one_line(error)
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


def _step(made: Outcome, step: str, work: Callable[[], Any]) -> Any:
    try:
        result = work()
    except Exception as error:  # what is no refusal is a fault of ours: it is counted as one
        return _failed(made, step, error, other="INTERNAL")
    setattr(made, step, "yes")
    return result


def _failed(made: Outcome, step: str, error: Exception, *, other: str) -> None:
    if isinstance(error, ratchet.Refusal):
        setattr(made, step, error.status.name)
        made.reasons[step] = error.message
    else:
        setattr(made, step, other)
        made.reasons[step] = in_one_line(error)
        traceback.print_exc()


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", MOST_DEVICES)
    folder = Path(sys.argv[2]).resolve()
    print(json.dumps(dataclasses.asdict(outcome(sys.argv[1], folder))).replace(f"{folder}/", ""))
