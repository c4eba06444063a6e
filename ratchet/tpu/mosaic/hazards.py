"""Executes a program again with what must not matter changed, and says what differs and where that begins.

What must not matter is what memory held before it was written, the order of the steps of parallel grid dimensions,
when a DMA arrives between its start and its wait, and whether the pipeline, which reads windows a step ahead, does so
before or after a write into them. Where an output then differs by a bit, further executions keep
digests of everything the kernels read, and the first that differs is the place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from ratchet.tpu.mlir.signature import Kernel
from ratchet.tpu.mosaic.findings import Finding, Kind
from ratchet.tpu.mosaic.read_digests import first_difference
from ratchet.tpu.mosaic.result import RunResult

_FILL = 3
_LATE = {"late_dma": True}

_DEPENDS = {
    Kind.UNINITIALISED: "what memory held before it was written",
    Kind.ORDER_DEPENDENT: "the order of the parallel grid dimensions",
    Kind.READ_BEFORE_WAIT: "when a DMA arrives: memory is used before the wait for it",
    Kind.WINDOW_RACE: "whether the pipeline reads a window, a step ahead, before or after a write into it",
}


class Program(Protocol):
    """What is executed: see ``run.Loaded``."""

    @property
    def kernels(self) -> Sequence[Kernel]: ...

    @property
    def covered(self) -> tuple[str, ...]: ...

    @property
    def has_orders(self) -> bool: ...

    @property
    def executed(self) -> Program: ...

    def place(self, inputs: Sequence[np.ndarray]) -> Any: ...

    def run(self, inputs: Any, *, seed: int = 0, fill: int = 0, padding: int | None = None) -> RunResult: ...

    def variant(self, *, late_dma: bool = False, late_windows: bool = False, witness: bool = False) -> Program: ...

    def begin(self, variants: Sequence[Mapping[str, bool]]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """Two executions of one translation of the program; the first has seed and fill 0."""

    kind: Kind
    changed: Mapping[str, int]
    variant: Mapping[str, bool] = field(default_factory=dict)
    """How the program is translated for both, where not as it is."""
    apart: tuple[_Trial, ...] = ()
    """What is changed at once here, one by one: tried where this makes a difference."""


def begin(program: Program) -> None:
    """Translate and compile beside what comes next what ``check`` will need."""
    late = program.executed is not program
    variants = [trial.variant for trial in _trials(program, seed=0) if trial.variant]
    program.begin([variant for variant in variants if not late or variant != _LATE])


def check(program: Program, inputs: Sequence[np.ndarray], *, seed: int, at_once: bool = False) -> RunResult:
    """Execute the program, and again with what has to make no difference changed.

    Args:
        seed: Of the other order of parallel steps.
        at_once: Whether memory and order are changed in one execution, and one by one only where that differs. It does
            not see zero times what only the other order leaves unwritten: for that memory has to hold NaN in it.

    Returns:
        The outputs; the findings, or else the first thing that made a difference; the seconds of the executions that
        say so.
    """
    begin(program)
    trials = _trials(program, seed)
    if not at_once:
        trials = [one for trial in trials for one in trial.apart or (trial,)]
    placed = program.place(inputs)
    if program.executed is program:
        return _after(program, placed, trials)
    others = [trial for trial in trials if trial.variant and trial.variant != _LATE]
    passed = _late(program.executed, placed, trials)
    return _after(program, placed, trials) if passed is None else _after(program, placed, others, passed)


def _late(late: Program, placed: Any, trials: Sequence[_Trial]) -> RunResult | None:
    """The outputs where DMAs arrive late, if nothing makes a difference to them; None if anything does.

    They need what memory held in no other place than the plain ones, and nothing before the wait for it: who passes
    here has no use for the plain translation, and its compilation is spared. Else that says what is wrong.
    """
    first = late.run(placed)
    if first.findings:
        return None
    seconds = first.seconds
    for changed in [trial.changed for trial in trials if not trial.variant]:
        other = late.run(placed, **changed)
        seconds += other.seconds
        if _differing(first, other) is not None:
            return None
    return replace(first, seconds=seconds)


def _after(program: Program, placed: Any, trials: Sequence[_Trial], first: RunResult | None = None) -> RunResult:
    """Every trial after the first execution, which is the plain one unless it is given."""
    program.begin([trial.variant for trial in trials if trial.variant])
    first = first or program.run(placed)
    if first.findings:
        return first
    seconds = first.seconds
    for trial in trials:
        plain = first
        if trial.variant:
            plain = program.variant(**trial.variant).run(placed)
            seconds += plain.seconds
            if plain.findings:
                return replace(first, findings=plain.findings, seconds=seconds)
            if _differing(first, plain) is None:
                continue
            # Two translations may round differently. What is read before its wait depends on what lay there.
        changed = program.variant(**trial.variant).run(placed, **trial.changed)
        seconds += changed.seconds
        where = _differing(plain, changed)
        if where is not None and trial.apart:
            again = _after(program, placed, trial.apart, first)
            seconds += again.seconds - first.seconds
            if again.findings:
                return replace(again, seconds=seconds)
        if where is not None:
            finding, spent = _located(program, placed, trial, *where)
            return replace(first, findings=(finding,), seconds=seconds + spent)
    return replace(first, seconds=seconds)


def _trials(program: Program, seed: int) -> list[_Trial]:
    memory = _Trial(kind=Kind.UNINITIALISED, changed={"fill": _FILL})
    trials = [memory]
    if program.has_orders:
        order = _Trial(kind=Kind.ORDER_DEPENDENT, changed={"seed": seed})
        trials = [replace(order, changed={**memory.changed, **order.changed}, apart=(memory, order))]
    if "tpu.enqueue_dma" in program.covered:
        trials.append(_Trial(kind=Kind.READ_BEFORE_WAIT, changed={"fill": _FILL}, variant=_LATE))
    if any(kernel.shares_windows for kernel in program.kernels):
        trials.append(_Trial(kind=Kind.WINDOW_RACE, changed={"fill": _FILL}, variant={"late_windows": True}))
    return trials


def _differing(a: RunResult, b: RunResult) -> tuple[int, tuple[int, ...], int] | None:
    """The first output that differs by a bit, where it first does, and in how many elements."""
    held = zip((a.outputs, *a.replicas), (b.outputs, *b.replicas), strict=False)
    pairs = [pair for outputs in held for pair in enumerate(zip(*outputs, strict=True))]
    for i, (x, y) in pairs:
        if x.tobytes() != y.tobytes():
            kept = [np.ascontiguousarray(z).view(np.uint8).reshape(*z.shape, z.itemsize) for z in (x, y)]
            apart = np.argwhere((kept[0] != kept[1]).any(-1))
            return i, tuple(map(int, apart[0])), len(apart)
    return None


def _located(
    program: Program, placed: Any, trial: _Trial, output: int, at: tuple[int, ...], count: int
) -> tuple[Finding, float]:
    """The finding of a trial that failed, with the first read in which its executions differ; seconds spent on it."""
    variant = program.variant(**trial.variant, witness=True)
    plain = variant.run(placed)
    seconds = plain.seconds
    message = f"output {output} depends on {_DEPENDS[trial.kind]}; it differs in {count} elements, the first {list(at)}"
    # What is past the ragged edge of an input is read and dropped by many sound kernels: only if nothing else
    # distinguishes the executions may it be what the output depends on.
    for padding in (0, _FILL) if "fill" in trial.changed else (0,):
        changed = variant.run(placed, **{**trial.changed, "padding": padding})
        seconds += changed.seconds
        for kernel, a, b in zip(program.kernels, plain.witness, changed.witness, strict=True):
            difference = first_difference(kernel.module, kernel.outputs, a, b)
            if difference is None:
                continue
            place, step = difference
            past = " (what is past the ragged edge of an input)" if padding else ""
            if isinstance(place, int):
                operation, location = f"write-back of output {place}", ""
            else:
                operation, location = place.name, place.location
            return Finding(
                kind=trial.kind,
                operation=operation,
                grid_step=kernel.coordinates(step),
                location=location,
                message=f"kernel {kernel.name}: {message}{past}; it begins here",
            ), seconds
    return Finding(kind=trial.kind, operation="", grid_step=(), location="", message=message), seconds
