"""Which integers a generator draws, found from its jaxpr: their first and last value, and what depends on nothing else.

Any element that is drawn by itself can be the first or the last value of its range: that, too, is a draw that the
generator could have made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ratchet.exam.problem.draws import EACH, PARTS, SORTED, Drawn
from ratchet.exam.problem.jaxprs import FlatJaxpr, Step, constant


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What is known of a value: the draws that it depends on, and either one number or how it is drawn."""

    sources: frozenset[int] = frozenset()
    number: Any = None
    drawn: Drawn | None = None
    is_free: bool = False
    """Whether every element is made of draws of its own."""


def drawn(generator: Callable[..., Any], *avals: jax.ShapeDtypeStruct) -> list[Drawn | None]:
    """For each output of a generator how it is drawn; None for floats, and where that is not known.

    Nor where another output depends on the same draw: the two may have to agree.
    """
    flat = FlatJaxpr(jax.make_jaxpr(generator)(*avals))
    known: dict[int, _Known] = {n: _Known(number=_single(np.asarray(const))) for n, const in flat.consts}
    known |= {n: _Known() for n in flat.inputs}

    def read(x: Any) -> _Known:
        return _Known(number=_single(constant(x))) if isinstance(x, core.Literal) else known[x]

    for number, step in enumerate(flat.steps):
        inputs = [read(x) for x in step.ins]
        sources = frozenset().union(*(one.sources for one in inputs))
        if step.equation.primitive.name == "random_bits":
            sources |= {number}
        found = _step(step, inputs, sources) if len(step.outs) == 1 else None
        known.update(dict.fromkeys(step.outs, found or _Known(sources=sources)))
    outputs = [read(x) for x in flat.outputs]
    alone = [
        not any(one.sources & other.sources for m, other in enumerate(outputs) if m != n)
        for n, one in enumerate(outputs)
    ]
    avals_out: list[Any] = [x.aval if isinstance(x, core.Literal) else flat.avals[x] for x in flat.outputs]
    dtypes = [aval.dtype for aval in avals_out]
    return [
        one.drawn if is_alone and jnp.issubdtype(dtype, jnp.integer) and dtype.itemsize <= 4 else None
        for one, is_alone, dtype in zip(outputs, alone, dtypes, strict=True)
    ]


def _single(array: np.ndarray[Any, Any]) -> Any:
    """The one number that an array holds; None where it holds several."""
    if array.dtype.kind not in "iub" or not array.size or (array != array.flat[0]).any():
        return None
    return int(array.flat[0])


_NUMBERS: Mapping[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": max,
    "min": min,
    "rem": lambda a, b: int(math.fmod(a, b)) if b else 0,
    "div": lambda a, b: int(a / b) if b else 0,
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "gt": lambda a, b: int(a > b),
    "ge": lambda a, b: int(a >= b),
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "clamp": lambda low, x, high: min(max(x, low), high),
    "select_n": lambda which, *cases: cases[which],
    "convert_element_type": lambda a: a,
    "neg": lambda a: -a,
}


def _step(step: Step, inputs: Sequence[_Known], sources: frozenset[int]) -> _Known | None:
    """What is known of the result of an equation; None: nothing but its sources."""
    name, known = step.equation.primitive.name, _Known(sources=sources)
    if name == "random_bits":
        return replace(known, is_free=True)
    if inputs and not sources and all(one.number is not None for one in inputs):
        return replace(known, number=_number(step, [one.number for one in inputs]))
    rule = _RULES.get(name)
    return replace(rule(step, inputs), sources=sources) if rule else None


def _number(step: Step, numbers: Sequence[int]) -> int | None:
    """What an equation makes of numbers; None where that is not known, or no integer."""
    name, dtype = step.equation.primitive.name, step.equation.outvars[0].aval.dtype
    if name in ("broadcast_in_dim", "reshape", "squeeze", "slice", "copy"):
        return numbers[0]
    is_whole = jnp.issubdtype(dtype, jnp.integer) or jnp.issubdtype(dtype, jnp.bool_)
    return _wrapped(_NUMBERS[name](*numbers), dtype) if is_whole and name in _NUMBERS else None


def _remainder(step: Step, inputs: Sequence[_Known]) -> _Known:
    """By a number, of an unsigned one that is random: as ``randint`` draws."""
    one, by = inputs[0], inputs[1].number
    if one.is_free and by and by > 0 and jnp.issubdtype(step.equation.outvars[0].aval.dtype, jnp.unsignedinteger):
        return _Known(is_free=True, drawn=Drawn(kind=EACH, first=0, last=by - 1))
    return _Known()


def _sort(step: Step, inputs: Sequence[_Known]) -> _Known:
    how, axis = inputs[0].drawn, len(step.equation.outvars[0].aval.shape) - 1
    if len(inputs) == 1 and how and how.kind == EACH and step.equation.params["dimension"] == axis:
        return _Known(drawn=replace(how, kind=SORTED))
    return _Known()


def _counts(step: Step, inputs: Sequence[_Known]) -> _Known:
    """How often each place was drawn, as ``bincount`` has it, times a number."""
    empty, where, unit = inputs
    is_list = len(step.equation.outvars[0].aval.shape) == 1
    if is_list and empty.number == 0 and where.sources and unit.number and unit.number > 0:
        total = unit.number * math.prod(step.equation.invars[2].aval.shape)
        return _Known(drawn=Drawn(kind=PARTS, first=0, last=total))
    return _Known()


def _places(step: Step, inputs: Sequence[_Known]) -> _Known:
    """Elements elsewhere, each at most once."""
    size = math.prod(step.equation.outvars[0].aval.shape)
    same = len({one.drawn for one in inputs}) == 1 and all(one.number is None for one in inputs)
    if size > sum(math.prod(v.aval.shape) for v in step.equation.invars) or not same:
        return _Known()
    how = inputs[0].drawn
    kept = how if how and (how.kind == EACH or step.equation.primitive.name in ("reshape", "squeeze", "copy")) else None
    return _Known(drawn=kept, is_free=all(one.is_free for one in inputs))


def _one_by_one(step: Step, inputs: Sequence[_Known]) -> _Known:
    """Elements of elements at the same place; with numbers an end of the range stays one where order does."""
    name, dtype = step.equation.primitive.name, step.equation.outvars[0].aval.dtype
    varying = [one for one in inputs if one.number is None]
    is_free = all(one.is_free for one in varying)
    if len(varying) == 1 and (how := varying[0].drawn) and _is_kept(name, inputs, how):
        given = [[end if one.number is None else one.number for one in inputs] for end in (how.first, how.last)]
        ends = [_NUMBERS[name](*numbers) for numbers in given]
        if jnp.issubdtype(dtype, jnp.integer) and all(_wrapped(end, dtype) == end for end in ends):
            return _Known(is_free=is_free, drawn=replace(how, first=min(ends), last=max(ends)))
    return _Known(is_free=is_free)


def _is_kept(name: str, inputs: Sequence[_Known], how: Drawn) -> bool:
    """Whether an operation with numbers leaves what is drawn what it is."""
    if name == "convert_element_type":
        return True
    if name == "mul":
        return max(one.number for one in inputs if one.number is not None) > 0
    if name not in ("add", "sub", "max", "min", "clamp") or how.kind == PARTS:
        return False
    return how.kind == EACH or name != "sub" or inputs[0].number is None


def _wrapped(number: int, dtype: Any) -> int:
    """A number as an integer of this dtype holds it."""
    if jnp.issubdtype(dtype, jnp.bool_):
        return int(bool(number))
    info = jnp.iinfo(dtype)
    span = int(info.max) - int(info.min) + 1
    return (number - int(info.min)) % span + int(info.min)


_RULES: dict[str, Callable[[Step, Sequence[_Known]], _Known]] = {"rem": _remainder, "sort": _sort}
_RULES |= dict.fromkeys(("scatter-add", "scatter_add"), _counts)
_RULES |= dict.fromkeys("reshape transpose squeeze slice rev copy broadcast_in_dim concatenate".split(), _places)
_RULES |= dict.fromkeys(
    "add sub mul max min clamp convert_element_type shift_left shift_right_logical and or xor".split(), _one_by_one
)
