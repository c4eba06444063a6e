"""Executes a program again with what must not matter changed, and says what differs and where that begins.

What must not matter is what memory held before it was written, the order of the steps of parallel grid dimensions,
when a DMA arrives between its start and its wait, and whether the pipeline, which reads windows a step early, does so
before or after a write into them. Where an output then differs by a bit, further executions keep digests of everything
the kernels read, and the first that differs is the place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ratchet.tpu.mosaic.findings import Finding, Kind, RunResult
from ratchet.tpu.mosaic.program import Program
from ratchet.tpu.mosaic.report import CELLS, first_difference
from ratchet.tpu.mosaic.translation import Translations

_FILL = 3
_ON_WAIT = {"on_wait": True}

_DEPENDS = {
    Kind.UNINITIALISED_MEMORY: "what memory held before it was written",
    Kind.ORDER_OF_PARALLEL_STEPS: "the order of the parallel grid dimensions, or of cores",
    Kind.READ_BEFORE_WAIT: "when a DMA arrives: memory is used before the wait for it",
    Kind.WINDOW_RACE: "whether the pipeline reads a window, a step ahead, before or after a write into it",
}


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """Two executions of one translation of the program; the first has seed and fill 0."""

    kind: Kind
    changed: Mapping[str, int]
    variant: dict[str, bool] = field(default_factory=dict)
    """How the program is translated for both, where not as it is."""
    apart: tuple[_Trial, ...] = ()
    """What is changed at once here, one by one: tried where this makes a difference."""


def begin(translations: Translations) -> None:
    """Translate and compile in the background what ``check`` will need."""
    translations.begin(*(trial.variant for trial in _trials(translations.program, seed=0) if trial.variant))


def check(translations: Translations, inputs: Sequence[np.ndarray], *, seed: int, at_once: bool = False) -> RunResult:
    """Execute the program, and again with what has to make no difference changed.

    Args:
        seed: Of the other order of parallel steps.
        at_once: Whether memory and order are changed in one execution, and one by one only where that differs. It does
            not see zero times what is unwritten in the other order alone: that takes an execution in that order whose
            memory holds NaN (``fill`` 0).

    Returns:
        The outputs; the findings, or else the first thing that made a difference; the seconds of the executions that
        say so.
    """
    begin(translations)
    trials, placed, first = _trials(translations.program, seed), translations.place(inputs), None
    if not at_once:
        trials = [one for trial in trials for one in trial.apart or (trial,)]
    if translations.first:
        first = _first_answer(translations, placed, trials)
    if first is not None:
        trials = [trial for trial in trials if trial.variant and trial.variant != translations.first]
    return _tried(translations, placed, trials, first)


def _first_answer(translations: Translations, placed: Any, trials: Sequence[_Trial]) -> RunResult | None:
    """The outputs where DMAs arrive late, if nothing makes a difference to them; None if anything does.

    They need what memory held in no other place than the plain ones, and nothing before the wait for it: who passes
    here has no use for the plain translation, and its compilation is spared. Else that says what is wrong.
    """
    translation = translations.with_options(**translations.first)
    first = translation.run(placed)
    if first.findings:
        return None
    seconds = first.seconds
    for changed in [trial.changed for trial in trials if not trial.variant]:
        other = translation.run(placed, **changed)
        seconds += other.seconds
        if _differing(first, other) is not None:
            return None
    return replace(first, seconds=seconds)


def _plain(translations: Translations, placed: Any) -> RunResult:
    """The plain execution; where a chip waits for what is sent later, the one in which chips fall behind."""
    first = translations.with_options().run(placed)
    waits = any(one.kind is Kind.WAIT_WITHOUT_START for one in first.findings)
    if not waits or translations.apart or translations.program.devices == 1:
        return first
    translations.apart = True
    begin(translations)
    again = translations.with_options().run(placed)
    return replace(again, seconds=first.seconds + again.seconds)


def _tried(translations: Translations, placed: Any, trials: Sequence[_Trial], first: RunResult | None) -> RunResult:
    """Every trial after the first execution, which is the plain one unless it is given."""
    first = first or _plain(translations, placed)
    if first.findings:
        return first
    seconds = first.seconds
    for trial in trials:
        translation, plain = translations.with_options(**trial.variant), first
        if trial.variant:
            plain = translation.run(placed)
            seconds += plain.seconds
            if plain.findings:
                return replace(first, findings=plain.findings, seconds=seconds)
            if _differing(first, plain) is None:
                continue
            # Two translations may round differently. What is read before its wait depends on what was there.
        changed = translation.run(placed, **trial.changed)
        seconds += changed.seconds
        where = _differing(plain, changed)
        if where is not None and trial.apart:
            again = _tried(translations, placed, trial.apart, first)
            seconds += again.seconds - first.seconds
            if again.findings:
                return replace(again, seconds=seconds)
        if where is not None:
            finding, spent = _located(translations, placed, trial, *where)
            return replace(first, findings=(finding,), seconds=seconds + spent)
    return replace(first, seconds=seconds)


def _trials(program: Program, seed: int) -> list[_Trial]:
    trials = [memory := _Trial(kind=Kind.UNINITIALISED_MEMORY, changed={"fill": _FILL})]
    if program.has_orders:
        order = _Trial(kind=Kind.ORDER_OF_PARALLEL_STEPS, changed={"seed": seed})
        trials = [replace(order, changed={**memory.changed, **order.changed}, apart=(memory, order))]
    if "tpu.enqueue_dma" in program.covered:
        trials.append(_Trial(kind=Kind.READ_BEFORE_WAIT, changed={"fill": _FILL}, variant=_ON_WAIT))
    if any(kernel.shares_windows for kernel in program.kernels):
        trials.append(_Trial(kind=Kind.WINDOW_RACE, changed={"fill": _FILL}, variant={"windows_ahead": True}))
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
    translations: Translations, placed: Any, trial: _Trial, output: int, at: tuple[int, ...], count: int
) -> tuple[Finding, float]:
    """The finding of a trial that failed, with the first read in which its executions differ; seconds spent on it."""
    translation = translations.with_options(**trial.variant, digests=CELLS)
    plain = translation.run(placed)
    seconds = plain.seconds
    message = f"output {output} depends on {_DEPENDS[trial.kind]}; it differs in {count} elements, the first {list(at)}"
    # What is past the ragged edge of an input is read and dropped by many sound kernels: only if nothing else
    # distinguishes the executions may it be what the output depends on.
    for padding in (0, _FILL) if "fill" in trial.changed else (0,):
        changed = translation.run(placed, **{**trial.changed, "padding": padding})
        seconds += changed.seconds
        for kernel, a, b in zip(translations.program.kernels, plain.digests, changed.digests, strict=True):
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
    return Finding(kind=trial.kind, message=message), seconds
