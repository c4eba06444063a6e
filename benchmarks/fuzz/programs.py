"""Random kernels of scalars: the value executor, Pallas's interpret mode and the definition of scalar arithmetic.

One kernel holds several random expressions and is run over a grid, each step with words of its own. A step of the fuzz
is one operation of an expression on the words of one grid step. Where the definition says that an answer is undefined,
nothing is compared, and interpret mode is not asked where XLA may contract a product and a sum to one operation.

Compiled for the chip, the schedule machine has to go the way of the value executor: compared are how often every branch
and loop that is left in the compiled program was taken. Where an undefined answer would steer, the words are drawn
again: the machine refuses those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.fuzz import expressions
from benchmarks.fuzz.expressions import FLOATS, INTEGERS, ROWS, Expression
from benchmarks.fuzz.rounds import Round
from benchmarks.lib.programs import compiled, of_function, struct
from ratchet.exam.judge import control
from ratchet.exam.judge.workers import Workers
from ratchet.tpu import latency
from ratchet.tpu.chips import V5E
from ratchet.tpu.compiler.tokens import tokenise
from ratchet.tpu.mosaic.run import Loaded, Options
from ratchet.tpu.scalar import DIVISION_BY_ZERO, NOT_AN_INTEGER, Undefined
from ratchet.values import Mesh
from ratchet.values.status import Refusal
from tests.tpu.mosaic.kernels import loaded

AREA = "scalar programs"
EXPRESSIONS, GRID, DEPTH = 12, 1024, 4
_TRIALS = 64
_REPORTED = (DIVISION_BY_ZERO, NOT_AN_INTEGER)
"""Undefined answers that are findings of the executor wherever they are computed, used or not."""
_MAY_REPORT = ("divide", "remainder", "to integer")
"""What an undefined word makes of these may be anything, a finding included."""


def wild_words(count: int, generator: np.random.Generator) -> np.ndarray:
    """Words of ``count`` grid steps, int32[count, WIDTH]: awkward ones, any, small ones and denormals."""
    words = expressions.words_of(count, generator)
    anything = generator.integers(-(2**31), 2**31, words.shape)
    small = generator.integers(-40, 41, words.shape)
    tiny = generator.integers(0, 2**24, (count, FLOATS)) - generator.integers(0, 2, (count, FLOATS)) * 2**31
    choice = generator.integers(0, 4, words.shape)
    small[:, INTEGERS:] = tiny
    return np.where(choice < 2, words, np.where(choice == 2, anything, small)).astype(np.int32)


def scalars(seed: int, *, count: int = EXPRESSIONS, grid: int = GRID) -> Round:
    """One kernel of ``count`` random expressions over ``grid`` steps."""
    generator = np.random.default_rng(seed)
    types = "".join(generator.choice(list("iifb"), count))
    drawn = _drawn(types, generator)
    words, wanted = _answered(drawn, wild_words(3 * grid, generator), grid)
    grid = len(words)
    given = np.ascontiguousarray(words.reshape(-1))
    try:
        run = loaded(expressions.storing(drawn, types, grid), given).run([given])
    except Refusal as refusal:
        what = f"refused: {refusal.status.name}: {refusal.message}"
        return Round(area=AREA, seed=seed, steps=0, differences=(what,))
    interpreted = np.asarray(expressions.storing(drawn, types, grid, interpret=True)(given))
    differences = [f"finding: {finding.message}" for finding in run.findings]
    executed, undefined, compared = run.outputs[0].reshape(grid, count), 0, 0
    for number, expression in enumerate(drawn):
        column = [row[number] for row in wanted]
        asked = np.array([not isinstance(answer, Undefined) for answer in column])
        answers = np.array([0 if isinstance(answer, Undefined) else answer for answer in column], np.int64)
        size = expressions.operations(expression)
        compared, undefined = compared + size * int(asked.sum()), undefined + size * int((~asked).sum())
        sides = {"executor": executed[:, number]}
        if not _contracted(expression):
            sides["interpret mode"] = interpreted.reshape(grid, count)[:, number]
        differences += _apart(expression, words, asked, answers, sides)
    return Round(
        area=AREA,
        seed=seed,
        steps=compared,
        outcomes={"equal": compared, "undefined": undefined},
        differences=tuple(differences),
    )


def _drawn(types: str, generator: np.random.Generator) -> list[Expression]:
    """An expression for each type that hardly ever computes what is a finding."""
    trial = [[int(word) for word in row] for row in wild_words(_TRIALS, generator)]
    chosen = []
    for kind in types:
        while True:
            expression = expressions.drawn(generator, kind, DEPTH)
            if sum(_answer(expression, words) is None for words in trial) <= _TRIALS // 16:
                break
        chosen.append(expression)
    return chosen


def _answered(
    drawn: Sequence[Expression], words: np.ndarray, grid: int
) -> tuple[np.ndarray, list[list[int | Undefined]]]:
    """The first steps' words, ``grid`` at most, for which nothing is computed that is a finding; answers of each."""
    kept: list[np.ndarray] = []
    answers: list[list[int | Undefined]] = []
    for row in words[: 3 * grid]:
        plain = [int(word) for word in row]
        known = [_answer(expression, plain) for expression in drawn]
        if None not in known:
            kept.append(row)
            answers.append([answer for answer in known if answer is not None])
        if len(kept) == grid:
            break
    return np.array(kept), answers


def _answer(expression: Expression, words: list[int]) -> int | Undefined | None:
    """As ``expressions.defined``; None where a part is a finding of the executor, or may be one."""
    if isinstance(expression, int):
        return words[expression]
    name, *operands = expression
    values = [_answer(operand, words) for operand in operands]
    if None in values:
        return None
    undefined = next((value for value in values if isinstance(value, Undefined)), None)
    if undefined is not None:
        return None if name in _MAY_REPORT else undefined
    answer = expressions.applied(name, values, words)
    return None if answer in _REPORTED else answer


def _contracted(expression: Expression) -> bool:
    """Whether XLA, which interpret mode is compiled by, may make one rounding of two: a product that is added."""
    if isinstance(expression, int):
        return False
    name, *operands = expression
    products = [not isinstance(operand, int) and operand[0] == "float multiply" for operand in operands]
    return (name in ("float add", "float subtract") and any(products)) or any(map(_contracted, operands))


def _apart(expression: Expression, words: np.ndarray, asked: Any, answers: Any, sides: dict[str, Any]) -> Iterator[str]:
    """Where a side's words are not the answers; the first of each."""
    for side, got in sides.items():
        wrong = np.flatnonzero(asked & (got != answers))
        if len(wrong):
            row = wrong[0]
            what = f"{side}: {expression} of {words[row].tolist()} is {got[row]}, defined as {answers[row]}"
            yield f"{what} ({len(wrong)} steps)"


# --- compiled for the chip ---

COMPILED = "compiled programs"
COMPILED_GRID, COMPILED_DEPTH = 256, 3


def compiled_scalars(seed: int, workers: Workers) -> Round:
    """One kernel of eight random expressions, executed, compiled and run by the machine."""
    generator = np.random.default_rng(seed)
    drawn = [_steering(generator) for _ in range(ROWS)]
    words = expressions.steps(drawn, COMPILED_GRID, seed)
    given = np.ascontiguousarray(words.reshape(-1))
    function = expressions.kernel(drawn, len(words))
    operations, places = len(words) * sum(map(expressions.operations, drawn)), 0
    try:
        made = of_function(function, [struct(given.shape, np.int32)])
        run = Loaded(tokenise(made.program)[0], Options()).run([given])
        flow = latency.step(compiled(made, workers), V5E, Mesh(), {0: given})[0].control
        wrong = [f"finding: {finding.message}" for finding in run.findings]
        got = run.outputs[0].reshape(len(words), -1, 128)[:, : len(drawn), 0]
        if not np.array_equal(got, expressions.rows(drawn, words)):
            wrong.append("the executor's values are not those of the definition")
        if flow is None:
            wrong.append("the machine cannot say which way it went")
        else:
            known = run.control
            places = len({*known.branches} & {*flow.branches}) + len({*known.loops} & {*flow.loops})
            wrong += map(str, control.differences(known, flow))
    except Refusal as refusal:
        wrong = [f"refused: {refusal.status.name}: {refusal.message}"]
    return Round(
        area=COMPILED,
        seed=seed,
        steps=operations,
        outcomes=({} if wrong else {"equal": operations}) | {"branches and loops": places},
        differences=tuple(f"{drawn}: {what}" for what in wrong),
    )


def _steering(generator: np.random.Generator) -> Expression:
    """A random integer that is defined for most awkward words."""
    trial = [[int(word) for word in row] for row in expressions.words_of(_TRIALS, generator)]
    while True:
        expression = expressions.drawn(generator, "i", COMPILED_DEPTH)
        answers = [expressions.defined(expression, words) for words in trial]
        if sum(isinstance(answer, int) for answer in answers) > _TRIALS * 7 // 8 and len(set(answers)) > 1:
            return expression
