"""Random kernels of scalars: the value executor, Pallas's interpret mode and the definition of scalar arithmetic.

One kernel holds several random expressions and is run over a grid, each step with words of its own. A step of the fuzz
is one operation of an expression on the words of one grid step. Where the definition says that an answer is undefined,
nothing is compared, and interpret mode is not asked where XLA may contract a product and a sum to one operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

from benchmarks.lib.fuzzing import expressions
from benchmarks.lib.fuzzing.expressions import FLOATS, INTEGERS, Expression
from benchmarks.lib.fuzzing.outcome import Difference, Round
from ratchet.tpu.mosaic.run import Loaded, load
from ratchet.tpu.scalar import DIVISION_BY_ZERO, NOT_AN_INTEGER, Undefined
from ratchet.values.status import Refusal

AREA = "scalar programs"
EXPRESSIONS, GRID, DEPTH = 12, 1024, 4
_TRIALS = 64
_REPORTED = (DIVISION_BY_ZERO, NOT_AN_INTEGER)
"""Undefined answers that are findings of the executor wherever they are computed, used or not."""
_MAY_REPORT = ("divide", "remainder", "to integer")
"""What an undefined word makes of these may be anything, a finding included."""


def loaded(function: Callable[..., Any], *arrays: Any) -> Loaded:
    """The TPU program of ``function``, for execution on the CPU."""
    avals = [jax.ShapeDtypeStruct(np.shape(a), a.dtype) for a in arrays]
    program = export.export(jax.jit(function), platforms=("tpu",))(*avals).serialize()
    return load(bytes(program), f32_matmul_passes="exact")


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
        return _failed(seed, f"refused: {refusal.status.name}: {refusal.message}")
    interpreted = np.asarray(expressions.storing(drawn, types, grid, interpret=True)(given))
    differences = [Difference(area=AREA, seed=seed, what=f"finding: {finding.message}") for finding in run.findings]
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
        differences += _apart(seed, expression, words, asked, answers, sides)
    return Round(
        area=AREA,
        cases=1,
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


def _apart(
    seed: int, expression: Expression, words: np.ndarray, asked: Any, answers: Any, sides: dict[str, Any]
) -> list[Difference]:
    """Where a side's words are not the answers; the first of each."""
    differences = []
    for side, got in sides.items():
        wrong = np.flatnonzero(asked & (got != answers))
        if len(wrong):
            row = wrong[0]
            what = f"{side}: {expression} of {words[row].tolist()} is {got[row]}, defined as {answers[row]}"
            differences.append(Difference(area=AREA, seed=seed, what=f"{what} ({len(wrong)} steps)"))
    return differences


def _failed(seed: int, what: str) -> Round:
    return Round(area=AREA, cases=1, steps=0, differences=(Difference(area=AREA, seed=seed, what=what),))
