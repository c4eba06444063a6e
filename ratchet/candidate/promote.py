"""Evaluate a JAX function in float64 whatever dtypes it was written in.

The reference of a problem is written in the problem's own dtypes. Judging needs the exact answer, so the
traced function is evaluated again with every floating-point value widened: casts to a narrower float become
casts to float64, and a product's accumulator likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

_INLINED = ("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "custom_jvp_call", "custom_vjp_call")
_REFUSED = ("bitcast_convert_type", "pallas_call", "custom_call", "ffi_call", "pure_callback", "io_callback")


def _is_float(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.floating)


def _widen(value: Any) -> Any:
    return jnp.asarray(value, jnp.float64) if _is_float(jnp.result_type(value)) else value


def in_float64(function: Callable[..., Any], *avals: jax.ShapeDtypeStruct) -> Callable[..., list[Any]]:
    """``function`` traced at ``avals``, as a function of the same inputs that computes in float64.

    Call the result with x64 enabled. It returns the flat list of outputs, floats as float64.

    Raises:
      NotImplementedError: for an operation whose meaning depends on the width of a float.
    """
    closed = jax.make_jaxpr(function)(*avals)

    def widened(*args: Any) -> list[Any]:
        return _evaluate(closed.jaxpr, closed.consts, [_widen(a) for a in args])

    return widened


def _evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    values: dict[Any, Any] = {}

    def read(atom: Any) -> Any:
        return (
            _widen(np.asarray(atom.val, getattr(atom.aval, "dtype", None)))
            if isinstance(atom, core.Literal)
            else values[atom]
        )

    values.update(zip(jaxpr.constvars, map(_widen, consts), strict=True))
    values.update(zip(jaxpr.invars, args, strict=True))
    for equation in jaxpr.eqns:
        outputs = _apply(equation, [read(atom) for atom in equation.invars])
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _apply(equation: Any, inputs: list[Any]) -> list[Any]:
    name, params = equation.primitive.name, dict(equation.params)
    if name in _REFUSED:
        raise NotImplementedError(f"the reference uses {name}, which has no meaning in float64")
    if name in _INLINED:
        inner = params.get("jaxpr") or params.get("call_jaxpr") or params.get("fun_jaxpr")
        return _call(inner, inputs)
    if name == "reduce_precision":
        return inputs
    if name == "scan":
        return _scan(params, inputs)
    if name == "while":
        return _while(params, inputs)
    if name == "cond":
        branches = [lambda *args, b=branch: _call(b, list(args)) for branch in params["branches"]]
        return list(jax.lax.switch(inputs[0], branches, *inputs[1:]))
    for key in ("new_dtype", "preferred_element_type", "dtype"):
        if params.get(key) is not None and _is_float(params[key]):
            params[key] = jnp.dtype("float64")
    result = equation.primitive.bind(*inputs, **params)
    return list(result) if equation.primitive.multiple_results else [result]


def _call(closed: Any, inputs: list[Any]) -> list[Any]:
    return _evaluate(getattr(closed, "jaxpr", closed), getattr(closed, "consts", ()), inputs)


def _scan(params: dict[str, Any], inputs: list[Any]) -> list[Any]:
    n_consts, n_carry = params["num_consts"], params["num_carry"]
    consts, carry, xs = inputs[:n_consts], inputs[n_consts : n_consts + n_carry], inputs[n_consts + n_carry :]

    def body(state: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        outputs = _call(params["jaxpr"], [*consts, *state, *x])
        return outputs[:n_carry], outputs[n_carry:]

    final, ys = jax.lax.scan(body, carry, xs, length=params["length"], reverse=params["reverse"])
    return [*final, *ys]


def _while(params: dict[str, Any], inputs: list[Any]) -> list[Any]:
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, body_consts, state = inputs[:n_cond], inputs[n_cond : n_cond + n_body], inputs[n_cond + n_body :]
    return jax.lax.while_loop(
        lambda s: _call(params["cond_jaxpr"], [*cond_consts, *s])[0],
        lambda s: _call(params["body_jaxpr"], [*body_consts, *s]),
        state,
    )
