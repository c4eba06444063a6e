"""Random kernels of scalars, compiled for the chip: the schedule machine has to go the way of the value executor.

Compared are how often every branch and loop that is left in the compiled program was taken, and the values with the
definition of scalar arithmetic. A step is one operation on the words of one grid step. Where an undefined answer would
steer, the words are drawn again: the machine refuses those.
"""

from __future__ import annotations

import numpy as np

from benchmarks.lib.fuzzing import expressions
from benchmarks.lib.fuzzing.expressions import ROWS
from benchmarks.lib.fuzzing.outcome import Difference, Round
from benchmarks.lib.programs import compiled, of_function, struct
from ratchet.exam.judge import control
from ratchet.exam.judge.workers import Workers
from ratchet.tpu import latency
from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler.tokens import tokenise
from ratchet.tpu.mosaic.run import Loaded, Options
from ratchet.values import Mesh
from ratchet.values.control import ControlFlow
from ratchet.values.status import Refusal

AREA = "compiled programs"
GRID, DEPTH, TRIALS = 256, 3, 64


def compiled_scalars(seed: int, workers: Workers) -> Round:
    """One kernel of eight random expressions, executed, compiled and run by the machine."""
    generator = np.random.default_rng(seed)
    drawn = [_steering(generator) for _ in range(ROWS)]
    words = expressions.steps(drawn, GRID, seed)
    given = np.ascontiguousarray(words.reshape(-1))
    function = expressions.kernel(drawn, len(words))
    operations = len(words) * sum(map(expressions.operations, drawn))
    try:
        made = of_function(function, [struct(given.shape, np.int32)])
        run = Loaded(tokenise(made.program)[0], Options()).run([given])
        flow = latency.step(compiled(made, workers), V5E, Mesh(), {0: given})[0].control
    except Refusal as refusal:
        return _round(seed, operations, 0, [f"{drawn}: refused: {refusal.status.name}: {refusal.message}"])
    wrong = [f"{drawn}: finding: {finding.message}" for finding in run.findings]
    got = run.outputs[0].reshape(len(words), -1, 128)[:, : len(drawn), 0]
    if not np.array_equal(got, expressions.rows(drawn, words)):
        wrong.append(f"{drawn}: the executor's values are not those of the definition")
    if flow is None:
        wrong.append(f"{drawn}: the machine cannot say which way it went")
    else:
        wrong += [f"{drawn}: {difference}" for difference in control.differences(run.control, flow)]
    return _round(seed, operations, _compared(run.control, flow), wrong)


def _steering(generator: np.random.Generator) -> expressions.Expression:
    """A random integer that is defined for most awkward words."""
    trial = [[int(word) for word in row] for row in expressions.words_of(TRIALS, generator)]
    while True:
        expression = expressions.drawn(generator, "i", DEPTH)
        answers = [expressions.defined(expression, words) for words in trial]
        if sum(isinstance(answer, int) for answer in answers) > TRIALS * 7 // 8 and len(set(answers)) > 1:
            return expression


def _compared(executed: ControlFlow, modelled: ControlFlow | None) -> int:
    """Branches and loops that both sides know."""
    if modelled is None:
        return 0
    return len(set(executed.branches) & set(modelled.branches)) + len(set(executed.loops) & set(modelled.loops))


def _round(seed: int, operations: int, places: int, wrong: list[str]) -> Round:
    return Round(
        area=AREA,
        cases=1,
        steps=operations,
        outcomes={"branches and loops": places} if wrong else {"equal": operations, "branches and loops": places},
        differences=tuple(Difference(area=AREA, seed=seed, what=what) for what in wrong),
    )
