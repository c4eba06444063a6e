"""Ranges of a reference's values, from ranges of its inputs, and which operations these take out of their domain.

Interval arithmetic over the jaxpr (Moore, Interval Analysis, 1966). A range says whether its ends belong to it, so that
an exponential is positive and a logistic function below one. What is not known may be anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core

from ratchet.exam.problem.jaxprs import INLINED, constant, constants_and_carried, inner

PASSES = 4
"""Turns of a loop in which its ranges may grow by themselves; then they grow to zero, and then without end."""


class Range(NamedTuple):
    """Numbers from ``low`` to ``high``, and which ends are no part of it."""

    low: float = -math.inf
    high: float = math.inf
    is_low_open: bool = False
    is_high_open: bool = False

    @property
    def has_zero(self) -> bool:
        above = self.low < 0 or (self.low == 0 and not self.is_low_open)
        return above and (self.high > 0 or (self.high == 0 and not self.is_high_open))

    def is_within(self, other: Range) -> bool:
        low = self.low > other.low or (self.low == other.low and (self.is_low_open or not other.is_low_open))
        high = self.high < other.high or (self.high == other.high and (self.is_high_open or not other.is_high_open))
        return low and high


ANY = Range()
_POSITIVE, _UNIT, _BETWEEN = Range(0, is_low_open=True), Range(-1, 1), Range(-1, 1, True, True)
DOMAINS: Mapping[str, Range] = {
    "log": _POSITIVE,
    "rsqrt": _POSITIVE,
    "lgamma": _POSITIVE,
    "digamma": _POSITIVE,
    "sqrt": Range(0),
    "log1p": Range(-1, is_low_open=True),
    "acos": _UNIT,
    "asin": _UNIT,
    "atanh": _BETWEEN,
    "erf_inv": _BETWEEN,
    "acosh": Range(1),
}
"""Where functions of one number are finite."""


class Known(NamedTuple):
    """What is known of a value: its range, the inputs that it is of, and the operations that left their domain on the
    way to it, each with the inputs of its own operand."""

    range: Range
    inputs: frozenset[int] = frozenset()
    faults: frozenset[tuple[int, frozenset[int]]] = frozenset()


def faults(closed: Any, given: Sequence[Range]) -> frozenset[tuple[int, frozenset[int]]]:
    """Operations of a jaxpr that inputs of these ranges may take out of their domain, where an output is of that.

    An operation behind a ``where`` that asks for an input of its own is not counted: the reference has an answer there.
    """
    known = [Known(one, frozenset((number,))) for number, one in enumerate(given)]
    outputs = _walk(closed.jaxpr, closed.consts, known)
    return frozenset().union(*(output.faults for output in outputs))


def hull(*several: Range) -> Range:
    """The smallest range that holds them all."""
    low, high = min(r.low for r in several), max(r.high for r in several)
    return Range(
        low,
        high,
        all(r.is_low_open for r in several if r.low == low),
        all(r.is_high_open for r in several if r.high == high),
    )


def _of_array(array: Any) -> Range:
    values = np.asarray(array)
    if not values.size or values.dtype.kind not in "biuf" or values.dtype.names:
        return ANY
    low, high = float(values.min()), float(values.max())
    return Range(low, high) if low <= high else ANY


def _walk(jaxpr: Any, consts: Sequence[Any], given: Sequence[Known]) -> list[Known]:
    known: dict[Any, Known] = dict(zip(jaxpr.invars, given, strict=True))
    known.update((var, Known(_of_array(value))) for var, value in zip(jaxpr.constvars, consts, strict=True))

    def read(atom: Any) -> Known:
        return Known(_of_array(constant(atom))) if isinstance(atom, core.Literal) else known[atom]

    for equation in jaxpr.eqns:
        ins = [read(atom) for atom in equation.invars]
        name = equation.primitive.name
        if name in INLINED:
            outs = _walk(*inner(equation), ins)
        elif name in _LOOPS:
            outs = _LOOPS[name](equation.params, ins)
        else:
            outs = _step(equation, ins)
        known.update(zip(equation.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _step(equation: Any, ins: list[Known]) -> list[Known]:
    name, ranges = equation.primitive.name, [one.range for one in ins]
    inputs: frozenset[int] = frozenset().union(*(one.inputs for one in ins))
    found: frozenset[tuple[int, frozenset[int]]] = frozenset().union(*(one.faults for one in ins))
    if name == "select_n":
        found = ins[0].faults | {one for one in found if not one[1] & ins[0].inputs}
    elif _is_outside(equation, ranges):
        found |= {(id(equation), inputs)}
    with np.errstate(all="ignore"):
        out = _RULES[name](equation, ranges) if name in _RULES else ANY
    out = ANY if math.isnan(out.low) or math.isnan(out.high) else out
    return [Known(out, inputs, found)] * len(equation.outvars)


def _is_outside(equation: Any, ranges: Sequence[Range]) -> bool:
    """Whether an operation may be asked for what it is not defined for. Of integers nothing is said."""
    name, out = equation.primitive.name, equation.outvars[0].aval
    if "float" not in str(out.dtype):
        return False
    if name == "div":
        return ranges[1].has_zero
    if name == "integer_pow":
        return equation.params["y"] < 0 and ranges[0].has_zero
    if name == "pow":
        return not ranges[0].is_within(Range(0) if ranges[1].low >= 0 else _POSITIVE)
    return name in DOMAINS and not ranges[0].is_within(DOMAINS[name])


def _cond(params: Any, ins: list[Known]) -> list[Known]:
    several = [_walk(branch.jaxpr, branch.consts, ins[1:]) for branch in params["branches"]]
    return [_joined(*same) for same in zip(*several, strict=True)]


def _joined(*several: Known) -> Known:
    inputs = frozenset().union(*(one.inputs for one in several))
    return Known(hull(*(one.range for one in several)), inputs, frozenset().union(*(one.faults for one in several)))


def _scan(params: Any, ins: list[Known]) -> list[Known]:
    consts, carried = constants_and_carried(params)
    head, state, slices = ins[:consts], ins[consts : consts + carried], ins[consts + carried :]
    body = params["jaxpr"]
    return _settled(lambda now: _walk(body.jaxpr, body.consts, [*head, *now, *slices]), state)


def _while(params: Any, ins: list[Known]) -> list[Known]:
    skip = params["cond_nconsts"]
    head, state, body = ins[skip : skip + params["body_nconsts"]], ins[skip + params["body_nconsts"] :], "body_jaxpr"
    return _settled(lambda now: _walk(params[body].jaxpr, params[body].consts, [*head, *now]), state)


def _settled(turn: Callable[[list[Known]], list[Known]], state: list[Known]) -> list[Known]:
    """What a loop returns, once what it carries no longer grows: carried values, then those of each turn."""
    for count in range(PASSES * 3):
        outs = turn(state)
        grown = [_joined(before, after) for before, after in zip(state, outs, strict=False)]
        if grown == state:
            break
        limits = (math.inf,) if count >= 2 * PASSES else (0.0, 1.0, math.inf)
        if count >= PASSES:
            grown = [
                one._replace(range=_widened(before.range, one.range, limits))
                for before, one in zip(state, grown, strict=True)
            ]
        state = grown
    return [*state, *outs[len(state) :]]


def _widened(before: Range, after: Range, limits: Sequence[float]) -> Range:
    """``after`` with each end that grew as far as the next of ``limits``, which no turn reached."""
    low, high = after.low, after.high
    if low < before.low:
        low = max((-x for x in (*limits, *(-x for x in limits)) if -x <= low), default=-math.inf)
    if high > before.high:
        high = min((x for x in (*limits, *(-x for x in limits)) if x >= high), default=math.inf)
    return Range(low, high, after.is_low_open or low < after.low, after.is_high_open or high > after.high)


_LOOPS: Mapping[str, Callable[[Any, list[Known]], list[Known]]] = {"scan": _scan, "while": _while, "cond": _cond}

Rule = Callable[[Any, Sequence[Range]], Range]


def _negative(x: Range) -> Range:
    return Range(-x.high, -x.low, x.is_high_open, x.is_low_open)


def _sum(a: Range, b: Range) -> Range:
    return Range(a.low + b.low, a.high + b.high, a.is_low_open or b.is_low_open, a.is_high_open or b.is_high_open)


def _product(a: Range, b: Range) -> Range:
    ends = []
    for x, x_open in ((a.low, a.is_low_open), (a.high, a.is_high_open)):
        for y, y_open in ((b.low, b.is_low_open), (b.high, b.is_high_open)):
            value = x * y if x and y else 0.0
            is_open = (x_open or y_open) if value else (x_open or x != 0) and (y_open or y != 0)
            ends.append(Range(value, value, is_open, is_open))
    return hull(*ends)


def _inverse(x: Range) -> Range:
    if x.low < 0 < x.high or (not x.low and not x.high):
        return ANY
    if x.low >= 0:
        return Range(1 / x.high, 1 / x.low if x.low else math.inf, x.is_high_open or math.isinf(x.high), x.is_low_open)
    return _negative(_inverse(_negative(x)))


def _even(x: Range, power: float) -> Range:
    """Of ``|x| ** power``."""
    ends = [(abs(x.low), x.is_low_open), (abs(x.high), x.is_high_open)]
    (low, low_open), (high, high_open) = sorted(ends)
    if x.low < 0 < x.high:
        low, low_open = 0.0, False
    return _times(Range(low, high, low_open, high_open), power)


def _times(x: Range, power: float) -> Range:
    """Of numbers that are not negative, to a power."""
    low = x.low**power
    return Range(low, np.float64(x.high) ** power, x.is_low_open or (x.low > 0 and not low), x.is_high_open)


def _power(equation: Any, ranges: Sequence[Range]) -> Range:
    y = equation.params["y"]
    if y < 0:
        return ANY if ranges[0].low < 0 else _inverse(_times(ranges[0], -y))
    return _even(ranges[0], y) if y % 2 == 0 else ANY if math.isinf(ranges[0].low) else _odd(ranges[0], y)


def _odd(x: Range, power: int) -> Range:
    return Range(float(np.float64(x.low) ** power), float(np.float64(x.high) ** power), x.is_low_open, x.is_high_open)


def _general_power(equation: Any, ranges: Sequence[Range]) -> Range:
    x, y = ranges
    if x.low < 0:
        return ANY
    return Range(0, is_low_open=not x.has_zero) if x.high > 1 or y.low < 0 else Range(0, 1, not x.has_zero)


def _multiplied(equation: Any, ranges: Sequence[Range]) -> Range:
    first, second = equation.invars
    return _even(ranges[0], 2) if first is second else _product(*ranges)


def _several(x: Range, count: int) -> Range:
    """Of a sum of so many."""
    return Range(x.low * count, x.high * count, x.is_low_open, x.is_high_open) if count else Range(0, 0)


def _reduced(equation: Any, ranges: Sequence[Range]) -> Range:
    return _several(ranges[0], math.prod(equation.invars[0].aval.shape[axis] for axis in equation.params["axes"]))


def _along(equation: Any, ranges: Sequence[Range]) -> Range:
    return hull(ranges[0], _several(ranges[0], equation.invars[0].aval.shape[equation.params["axis"]]))


def _factors(equation: Any, ranges: Sequence[Range]) -> Range:
    (x,), params, shape = ranges, equation.params, equation.invars[0].aval.shape
    count = math.prod(shape[axis] for axis in params.get("axes", (params.get("axis", 0),)))
    if x.low < 0:
        return ANY if max(-x.low, x.high) > 1 else _UNIT
    return hull(x, _times(x, count))


def _dot(equation: Any, ranges: Sequence[Range]) -> Range:
    (contracted, _), _ = equation.params["dimension_numbers"]
    shape = equation.invars[0].aval.shape
    return _several(_product(*ranges), math.prod(shape[axis] for axis in contracted))


def _rising(function: Callable[[Any], Any], domain: Range = ANY, *, opens: bool = False) -> Rule:
    """A function that never falls; ``opens``: that never reaches its limits."""

    def rule(equation: Any, ranges: Sequence[Range]) -> Range:
        (x,) = ranges
        ends = np.clip([x.low, x.high], domain.low, domain.high)
        low, high = (float(end) for end in function(ends))
        low_open, high_open = (opens and bool(np.isinf(end)) for end in (x.low, x.high))
        # What is so far out that it rounds to the limit is not there yet.
        far = [opens and float(end) == float(limit) for end, limit in zip((low, high), function(_ENDS), strict=True)]
        return Range(low, high, x.is_low_open or low_open or far[0], x.is_high_open or high_open or far[1])

    return rule


_ENDS = np.array([-math.inf, math.inf])


def _clamped(equation: Any, ranges: Sequence[Range]) -> Range:
    low, x, high = ranges
    return _smaller(equation, [_larger(equation, [low, x]), high])


def _larger(equation: Any, ranges: Sequence[Range]) -> Range:
    low = max(ranges, key=lambda r: (r.low, r.is_low_open))
    high = hull(*ranges)
    return Range(low.low, high.high, low.is_low_open, high.is_high_open)


def _smaller(equation: Any, ranges: Sequence[Range]) -> Range:
    return _negative(_larger(equation, [_negative(x) for x in ranges]))


_FIRST = (
    "reshape transpose squeeze slice rev copy broadcast_in_dim dynamic_slice gather convert_element_type split real "
    "reduce_max reduce_min cummax cummin reduce_precision stop_gradient sharding_constraint optimization_barrier copy_p"
).split()
"""Operations whose result holds numbers of the first operand alone."""
_FLAGS = "lt le gt ge eq ne is_finite reduce_and reduce_or not and or".split()

_RULES: dict[str, Rule] = {
    "neg": lambda e, r: _negative(r[0]),
    "add": lambda e, r: _sum(*r),
    "add_any": lambda e, r: _sum(*r),
    "sub": lambda e, r: Range(0, 0) if e.invars[0] is e.invars[1] else _sum(r[0], _negative(r[1])),
    "mul": _multiplied,
    "div": lambda e, r: _product(r[0], _inverse(r[1])),
    "square": lambda e, r: _even(r[0], 2),
    "integer_pow": _power,
    "pow": _general_power,
    "abs": lambda e, r: _even(r[0], 1),
    "max": _larger,
    "min": _smaller,
    "clamp": _clamped,
    "reduce_sum": _reduced,
    "cumsum": _along,
    "reduce_prod": _factors,
    "cumprod": _factors,
    "dot_general": _dot,
    "exp": _rising(np.exp, opens=True),
    "exp2": _rising(np.exp2, opens=True),
    "expm1": _rising(np.expm1, opens=True),
    "log": _rising(np.log, Range(0)),
    "log1p": _rising(np.log1p, Range(-1)),
    "sqrt": _rising(np.sqrt, Range(0)),
    "rsqrt": lambda e, r: _inverse(_rising(np.sqrt, Range(0))(e, r)),
    "cbrt": _rising(np.cbrt),
    "tanh": _rising(np.tanh, opens=True),
    "logistic": _rising(lambda x: 1 / (1 + np.exp(-x)), opens=True),
    "asinh": _rising(np.arcsinh),
    "atan": _rising(np.arctan, opens=True),
    "floor": _rising(np.floor),
    "ceil": _rising(np.ceil),
    "round": _rising(np.round),
    "sign": _rising(np.sign),
    "erf": lambda e, r: _BETWEEN,
    "erfc": lambda e, r: Range(0, 2, True, True),
    "sin": lambda e, r: _UNIT,
    "cos": lambda e, r: _UNIT,
    "iota": lambda e, r: Range(0, max(e.params["shape"][e.params["dimension"]] - 1, 0)),
    "select_n": lambda e, r: hull(*r[1:]),
    "concatenate": lambda e, r: hull(*r),
    "pad": lambda e, r: hull(*r),
    "dynamic_update_slice": lambda e, r: hull(*r[:2]),
}
_RULES |= dict.fromkeys(_FIRST, lambda e, r: r[0])
_RULES |= dict.fromkeys(_FLAGS, lambda e, r: Range(0, 1))
