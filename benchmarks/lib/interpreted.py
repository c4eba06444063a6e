"""Programs on the CPU: lowered by Pallas for a TPU that is not there, or interpreted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend import core


def on_v5e() -> Any:
    """A context in which Pallas lowers for one TPU v5e, with a mesh of that device."""
    device = jax.sharding.AbstractDevice(device_kind="TPU v5 lite", num_cores=1, platform="tpu")
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((1,), ("chip",), abstract_device=device))


def interpreted(function: Callable[..., Any], *arrays: Any) -> Callable[..., Any]:
    """A jitted function of the same arguments with ``interpret=True`` in every ``pallas_call``; its result is flat."""
    traced = jax.jit(function).trace(*arrays)
    return jax.jit(core.jaxpr_as_fun(_closed(traced.jaxpr)))


def _closed(jaxpr: Any) -> Any:
    return jaxpr.replace(jaxpr=_open(jaxpr.jaxpr))


def _open(jaxpr: Any) -> Any:
    return jaxpr.replace(eqns=[_equation(equation) for equation in jaxpr.eqns])


def _equation(equation: Any) -> Any:
    params = {}
    for name, value in equation.params.items():
        if isinstance(value, core.ClosedJaxpr):
            params[name] = _closed(value)
        elif isinstance(value, core.Jaxpr) and equation.primitive.name != "pallas_call":
            params[name] = _open(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], core.ClosedJaxpr):
            params[name] = tuple(_closed(item) for item in value)
        else:
            params[name] = value
    if equation.primitive.name == "pallas_call":
        params["interpret"] = True
    return equation.replace(params=params)
