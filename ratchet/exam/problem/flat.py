"""A jaxpr as one list of equations over numbered values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend import core

INLINED = ("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "custom_jvp_call", "custom_vjp_call")
"""Calls of an inner jaxpr that are nothing but that."""


def inner(equation: Any) -> Any:
    """The closed jaxpr that a call holds."""
    params = equation.params
    return params.get("jaxpr") or params.get("call_jaxpr") or params.get("fun_jaxpr")


@dataclass(frozen=True, kw_only=True)
class Step:
    """An equation over numbered values; a literal stays one."""

    equation: Any
    ins: tuple[Any, ...]
    outs: tuple[int, ...]


class Flat:
    """A jaxpr with its inner calls inlined."""

    def __init__(self, closed: Any) -> None:
        self.steps: list[Step] = []
        self.avals: list[Any] = []
        self.consts = [
            (self._new(var.aval), const) for var, const in zip(closed.jaxpr.constvars, closed.consts, strict=True)
        ]
        self.inputs = [self._new(var.aval) for var in closed.jaxpr.invars]
        self.outputs = self._walk(closed.jaxpr, [n for n, _ in self.consts], self.inputs)

    def _new(self, aval: Any) -> int:
        self.avals.append(aval)
        return len(self.avals) - 1

    def _walk(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        known.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Any:
            return atom if isinstance(atom, core.Literal) else known[atom]

        for equation in jaxpr.eqns:
            ins = [read(atom) for atom in equation.invars]
            if equation.primitive.name in INLINED:
                closed = inner(equation)
                made = [self._new(var.aval) for var in getattr(closed, "jaxpr", closed).constvars]
                self.consts += zip(made, getattr(closed, "consts", ()), strict=True)
                outs = self._walk(getattr(closed, "jaxpr", closed), made, ins)
            else:
                outs = [self._new(var.aval) for var in equation.outvars]
                self.steps.append(Step(equation=equation, ins=tuple(ins), outs=tuple(outs)))
            known.update(zip(equation.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]


def constant(literal: Any) -> Any:
    return np.asarray(literal.val, literal.aval.dtype)


def resized(equation: Any, dimension: int | None, size: int) -> dict[str, Any]:
    """The parameters of an equation whose result has another size along a dimension: where they name it."""
    params = dict(equation.params)
    if dimension is not None:
        for key in ("shape", "new_sizes", "slice_sizes", "limit_indices"):
            if key in params and not (key == "shape" and equation.primitive.name == "split"):
                sizes = list(params[key])
                sizes[dimension] = size
                params[key] = tuple(sizes)
    return params
