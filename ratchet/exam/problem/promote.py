"""Evaluate a JAX function in float64, together with what honest arithmetic may lose in it.

The reference of a problem is written in the problem's own dtypes. Judging needs the exact answer, so the
traced function is evaluated again with every floating-point value widened: casts to a narrower float become
casts to float64, and a product's accumulator likewise. Beside each value goes its loss (``rounding/value.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ratchet.exam.problem.blocks import Blocks, in_blocks
from ratchet.exam.problem.jaxprs import INLINED, constant, constants_and_carried, inner
from ratchet.exam.problem.rounding.equation import apply
from ratchet.exam.problem.rounding.recurrence import is_linear
from ratchet.exam.problem.rounding.ties import asked, everywhere
from ratchet.exam.problem.rounding.value import (
    EPS32,
    Value,
    earlier,
    eps_of,
    exact,
    is_float,
    loss_of_output,
    widened,
)
from ratchet.exam.problem.tiled import run
from ratchet.exam.problem.tiles import in_tiles

_REFUSED = ("pallas_call", "custom_call", "ffi_call", "pure_callback", "io_callback")


def with_losses(function: Callable[..., Any], *avals: jax.ShapeDtypeStruct) -> Callable[..., list[Any]]:
    """``function`` traced at ``avals``, as a function of the same inputs that computes in float64.

    Call the result with x64 enabled. It returns the flat list of outputs, floats as float64, then for each of them
    its loss: float64 of the output's shape, the standard deviation of what honest arithmetic loses before the output
    itself is rounded. For integers and booleans it is by how much they may legitimately differ.

    Raises:
      NotImplementedError: for an operation whose meaning depends on the width of a float.
    """
    some, blocks = by_rows(function, *avals)
    if blocks is None:
        return some
    every = np.arange(blocks.length, dtype=np.int32)
    return lambda *args: some(blocks.count, every, *args)


def by_rows(
    function: Callable[..., Any], *avals: jax.ShapeDtypeStruct
) -> tuple[Callable[..., list[Any]], Blocks | None]:
    """As ``with_losses``, with the blocks that a large function is cut into: then it takes ``(count, rows, *inputs)``.

    Those are its first arguments as of ``Blocks.run``.
    """
    with jax.enable_x64(False):  # as it is traced for the reference in its own dtypes
        closed = jax.make_jaxpr(function)(*avals)
    blocks = in_blocks(closed)
    call = _widening(blocks.block if blocks else closed)

    def some(count: Any, rows: Any, *args: Any) -> list[Any]:
        assert blocks is not None
        return blocks.run(call, count, rows, args)

    return (some if blocks else lambda *args: call(args)), blocks


def _widening(jaxpr: Any) -> Callable[[Sequence[Any]], list[Any]]:
    """Evaluates a jaxpr in float64: its outputs, then their losses."""
    tiles = in_tiles(jaxpr)

    def call(args: Sequence[Any]) -> list[Any]:
        values = [exact(a) for a in args]
        with asked(jaxpr.jaxpr):
            outputs = run(tiles, _apply, values) if tiles else _call(jaxpr, values)
        return [output.v for output in outputs] + [loss_of_output(output) for output in outputs]

    return call


def _evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Value]) -> list[Value]:
    values: dict[Any, Value] = {}

    def read(atom: Any) -> Value:
        if isinstance(atom, core.Literal):
            return exact(constant(atom), spread=True)
        return values[atom]

    values.update(zip(jaxpr.constvars, map(exact, consts), strict=True))
    values.update(zip(jaxpr.invars, args, strict=True))
    for equation in jaxpr.eqns:
        outputs = _apply(equation, [read(atom) for atom in equation.invars])
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _apply(equation: Any, inputs: list[Value]) -> list[Value]:
    name, params = equation.primitive.name, equation.params
    if name in _REFUSED:
        raise NotImplementedError(f"the reference uses {name}, which has no meaning in float64")
    if name in INLINED:
        return _evaluate(*inner(equation), inputs)
    if name == "scan":
        return _scan(params, inputs)
    if name == "while":
        return _while(params, inputs)
    if name == "cond":
        return _cond(params, inputs)
    if name == "custom_linear_solve":
        lengths = params["const_lengths"]
        before = lengths.matvec + lengths.vecmat
        rest = inputs[before + lengths.solve + lengths.transpose_solve :]
        return _call(params["jaxprs"].solve, [*inputs[before : before + lengths.solve], *rest])
    if name == "bitcast_convert_type":
        return [_bits(equation, *inputs)]
    return apply(equation, inputs)


def _bits(equation: Any, x: Value) -> Value:
    """The bits of a value: exact where they are those of an input, or of an integer about which there is no doubt."""
    before, after = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
    if not x.exact and (is_float(before) or x.s is not None):
        raise NotImplementedError(f"the reference takes the bits of a computed {before}, which float64 does not have")
    out = equation.primitive.bind(x.v.astype(before), **equation.params)
    return Value(v=widened(out), exact=True, eps=max(eps_of(after), EPS32))


def _call(closed: Any, inputs: Sequence[Value]) -> list[Value]:
    return _evaluate(closed.jaxpr, closed.consts, inputs)


State = tuple[Any, ...]
"""Of a value in a loop: itself, its loss, and where it is sure."""


class _Static:
    """What of the values that leave a loop's body is known while it is traced: all but the arrays."""

    def __init__(self) -> None:
        self.known: list[tuple[float, bool]] = []

    def arrays(self, values: Sequence[Value]) -> list[State]:
        """The arrays to carry. Of several traces the least exact counts."""
        now = [(value.eps, value.exact) for value in values]
        before = self.known or now
        self.known = [(max(a, c), b and d) for (a, b), (c, d) in zip(before, now, strict=True)]
        return _state(values)

    def values(self, arrays: Sequence[State]) -> list[Value]:
        return [
            Value(v=v, s=None if exact else s, eps=eps, exact=exact, sure=sure)
            for (v, s, sure), (eps, exact) in zip(arrays, self.known, strict=True)
        ]


def _carried(avals: Sequence[Any], state: Sequence[State], turns: int = 0) -> list[Value]:
    """What a loop carries is rounded to its own dtype in every turn; ``turns`` and two arrays more if it is linear."""
    return [
        Value(
            v=v,
            s=s,
            sure=sure,
            eps=eps_of(aval.dtype),
            turns=turns if linear else 0,
            common=linear[0] if linear else None,
            logs=linear[1] if linear else None,
        )
        for aval, (v, s, sure, *linear) in zip(avals, state, strict=True)
    ]


def _state(values: Sequence[Value], linear: bool = False) -> list[State]:
    """The arrays to carry; of what a linear loop carries what is off in common, and logarithms, too."""
    return [
        (value.v, earlier(value), everywhere(value), *(_of_chunks(value) if linear and is_float(value.v.dtype) else []))
        for value in values
    ]


def _of_chunks(value: Value) -> list[Any]:
    nothing = jnp.zeros(jnp.shape(value.v), jnp.float32)
    return [nothing if known is None else known for known in (value.common, value.logs)]


def _scan(params: Any, inputs: list[Value]) -> list[Value]:
    n_consts, n_carry = constants_and_carried(params)
    consts, carry, xs = inputs[:n_consts], inputs[n_consts : n_consts + n_carry], inputs[n_consts + n_carry :]
    avals, ys_known = params["jaxpr"].in_avals[n_consts : n_consts + n_carry], _Static()
    lost = [x.s for x in xs if x.s is not None]
    linear = is_linear(params["jaxpr"], n_consts, n_carry, _inlined)
    known = [everywhere(x) for x in xs]

    def body(state: Any, sliced: Any) -> Any:
        parts, losses, masks = list(sliced[0]), iter(sliced[1]), sliced[2]
        here = [
            Value(v=v, s=None if x.s is None else next(losses), eps=x.eps, exact=x.exact, sure=sure)
            for v, x, sure in zip(parts, xs, masks, strict=True)
        ]
        outputs = _call(params["jaxpr"], [*consts, *_carried(avals, state, params["length"]), *here])
        return _state(outputs[:n_carry], linear), ys_known.arrays(outputs[n_carry:])

    options = {"length": params["length"], "reverse": params["reverse"]}
    final, ys = jax.lax.scan(body, _state(carry, linear), ([x.v for x in xs], lost, known), **options)
    return [*_carried(avals, final), *ys_known.values(ys)]


def _inlined(equation: Any) -> Any:
    """The jaxpr that an equation is nothing but a call of, else None."""
    return inner(equation)[0] if equation.primitive.name in INLINED else None


def _while(params: Any, inputs: list[Value]) -> list[Value]:
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, body_consts, state = inputs[:n_cond], inputs[n_cond : n_cond + n_body], inputs[n_cond + n_body :]
    avals = params["body_jaxpr"].in_avals[n_body:]
    final = jax.lax.while_loop(
        lambda s: _call(params["cond_jaxpr"], [*cond_consts, *_carried(avals, s)])[0].v,
        lambda s: _state(_call(params["body_jaxpr"], [*body_consts, *_carried(avals, s)])),
        _state(state),
    )
    return _carried(avals, final)


def _cond(params: Any, inputs: list[Value]) -> list[Value]:
    which, *operands = inputs
    known = _Static()
    branches = [lambda b=branch: known.arrays(_call(b, operands)) for branch in params["branches"]]
    return known.values(jax.lax.switch(which.v, branches))
