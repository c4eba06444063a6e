"""Control flow, and what has no effect on values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.mosaic.dtypes import jax_dtype
from ratchet.mosaic.machine import DEVICES, Machine
from ratchet.mosaic.module import Op, Value
from ratchet.mosaic.rules import refuse, rule


def _no_refs(machine: Machine, op: Op, values: tuple[Value, ...]) -> None:
    if any(value.type.kind == "memref" for value in values):
        raise refuse(f"{op.name} that passes on a memref", machine.kernel, op)


def _arrays(values: list[Any], like: tuple[Value, ...]) -> list[Any]:
    return [jnp.asarray(x, jax_dtype(v.type.dtype)) for x, v in zip(values, like, strict=True)]


@rule("scf.if")
def _if(machine: Machine, op: Op) -> None:
    """One of two branches. Only what a branch may write is carried, never a whole input."""
    _no_refs(machine, op, op.results)
    condition = machine[op.operands[0]]
    then, otherwise = op.regions
    if isinstance(condition, np.generic):
        block = then if condition else otherwise
        machine.values.update(zip(op.results, machine.run_block(block), strict=True))
        return
    if machine.has_remote(op):
        _masked_if(machine, op, condition)
        return
    buffers = machine.written(op)

    def branch(block: Any) -> Any:
        def run(arrays: list[Any]) -> tuple[list[Any], list[Any]]:
            out, after = machine.within(buffers, arrays, lambda: machine.run_block(block))
            return _arrays(out, op.results), after

        return run

    out, after = lax.cond(condition, branch(then), branch(otherwise), [machine.memory[b] for b in buffers])
    machine.values.update(zip(op.results, out, strict=True))
    machine.memory.update(zip(buffers, after, strict=True))


def _masked_if(machine: Machine, op: Op, condition: Any) -> None:
    """Both branches on every device, each under its mask: devices that send must meet those that receive."""
    outer = machine.active
    results = []
    for block, taken in zip(op.regions, (condition, ~condition), strict=True):
        machine.active = taken if outer is None else outer & taken
        results.append(_arrays(machine.run_block(block), op.results))
    machine.active = outer
    merged = [jnp.where(condition, a, b) for a, b in zip(*results, strict=True)] if op.results else []
    machine.values.update(zip(op.results, merged, strict=True))


@rule("scf.for", attributes=("unsignedCmp",))
def _for(machine: Machine, op: Op) -> None:
    _no_refs(machine, op, op.results)
    low, high, step = (machine[value] for value in op.operands[:3])
    if op.attributes.get("unsignedCmp"):
        raise refuse("scf.for with an unsigned comparison", machine.kernel, op)
    carried = _arrays([machine[value] for value in op.operands[3:]], op.results)
    index = jnp.asarray(low, jax_dtype(op.operands[0].type.dtype))

    def turn(values: list[Any]) -> list[Any]:
        return [values[0] + step, *_arrays(machine.run_block(op.regions[0], values), op.results)]

    constant = isinstance(low, np.generic) and isinstance(high, np.generic)
    _, *out = _repeat(machine, op, [index, *carried], lambda values: values[0] < high, turn, together=constant)
    machine.values.update(zip(op.results, out, strict=True))


@rule("scf.while")
def _while(machine: Machine, op: Op) -> None:
    """``before`` may write memory and yields the condition, so it runs once ahead and then at the end of each turn."""
    _no_refs(machine, op, op.results)
    before, after = op.regions

    def test(arguments: list[Any]) -> list[Any]:
        go, *out = machine.run_block(before, arguments)
        return [jnp.asarray(go), *_arrays(out, op.results)]

    def turn(values: list[Any]) -> list[Any]:
        return test(_arrays(machine.run_block(after, values[1:]), op.operands))

    first = test(_arrays([machine[value] for value in op.operands], op.operands))
    _, *out = _repeat(machine, op, first, lambda values: values[0], turn, together=False)
    machine.values.update(zip(op.results, out, strict=True))


def _repeat(
    machine: Machine, op: Op, start: list[Any], going: Callable[[list[Any]], Any], turn: Any, *, together: bool
) -> list[Any]:
    """``turn`` the carried values while ``going``; the last ones.

    Devices that send must meet those that receive, so with remote operations inside, and unless all take equally many
    turns (``together``), none leaves the loop before the last: those that are done turn under a mask.
    """
    buffers, outer = machine.written(op), machine.active
    memory = [machine.memory[buffer] for buffer in buffers]
    if not machine.has_remote(op) or (together and outer is None):
        values, memory = lax.while_loop(
            lambda state: going(state[0]),
            lambda state: machine.within(buffers, state[1], lambda: turn(state[0])),
            (start, memory),
        )
    else:

        def mine(values: list[Any]) -> Any:
            return going(values) if outer is None else outer & going(values)

        def anyone(values: list[Any]) -> Any:
            return lax.psum(mine(values).astype(jnp.int32), DEVICES) > 0

        def advance(state: Any) -> Any:
            values, arrays, _ = state
            machine.active = active = mine(values)
            try:
                new, arrays = machine.within(buffers, arrays, lambda: turn(values))
            finally:
                machine.active = outer
            values = [jnp.where(active, a, b) for a, b in zip(new, values, strict=True)]
            return values, arrays, anyone(values)

        values, memory, _ = lax.while_loop(lambda state: state[2], advance, (start, memory, anyone(start)))
    machine.memory.update(zip(buffers, memory, strict=True))
    return values


@rule("tpu.region")
def _region(machine: Machine, op: Op) -> None:
    machine.values.update(zip(op.results, machine.run_block(op.regions[0]), strict=True))


@rule("tpu.trace", attributes=("message", "level"))
def _trace(machine: Machine, op: Op) -> None:
    machine.values.update(zip(op.results, machine.run_block(op.regions[0]), strict=True))


@rule("tpu.trace_start", "tpu.trace_stop", "tpu.trace_value", "tpu.delay", "tpu.log", "tpu.log_buffer",
      attributes=("message", "level", "label", "tag", "formatted", "shape", "operandSegmentSizes"))  # fmt: skip
def _no_effect(machine: Machine, op: Op) -> None:
    """Tracing, logging and delays change no value."""


@rule("tpu.assume_multiple", attributes=("multiple",))
def _assume_multiple(machine: Machine, op: Op) -> None:
    machine.result(op, machine[op.operands[0]])


@rule("tpu.iteration_bound", attributes=("dim",))
def _iteration_bound(machine: Machine, op: Op) -> None:
    machine.result(op, jnp.asarray(machine.bounds[int(str(op.attributes["dim"]))], jnp.int32))
