"""Control flow, and what has no effect on values."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.mosaic.dtypes import jax_dtype
from ratchet.mosaic.machine import Machine
from ratchet.mosaic.module import Op, Value
from ratchet.mosaic.rules import refuse, rule


def _no_refs(machine: Machine, op: Op, values: tuple[Value, ...]) -> None:
    if any(value.type.kind == "memref" for value in values):
        raise refuse(f"{op.name} that passes on a memref", machine.kernel, op)


def _no_remote_loop(machine: Machine, op: Op) -> None:
    if machine.active is not None and machine.has_remote(op):
        raise refuse(f"{op.name} with remote operations inside a conditional", machine.kernel, op)


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
    _no_remote_loop(machine, op)
    low, high, step = (machine[value] for value in op.operands[:3])
    if op.attributes.get("unsignedCmp"):
        raise refuse("scf.for with an unsigned comparison", machine.kernel, op)
    start = _arrays([machine[value] for value in op.operands[3:]], op.results)
    buffers = machine.written(op)
    body = op.regions[0]

    def advance(state: tuple[Any, list[Any], list[Any]]) -> tuple[Any, list[Any], list[Any]]:
        i, carried, arrays = state
        out, after = machine.within(buffers, arrays, lambda: machine.run_block(body, [i, *carried]))
        return i + step, _arrays(out, op.results), after

    index = jnp.asarray(low, jax_dtype(op.operands[0].type.dtype))
    _, out, after = lax.while_loop(
        lambda state: state[0] < high, advance, (index, start, [machine.memory[b] for b in buffers])
    )
    machine.values.update(zip(op.results, out, strict=True))
    machine.memory.update(zip(buffers, after, strict=True))


@rule("scf.while")
def _while(machine: Machine, op: Op) -> None:
    """``before`` may write memory and yields the condition, so it runs once ahead and then at the end of each turn."""
    _no_refs(machine, op, op.results)
    _no_remote_loop(machine, op)
    before, after = op.regions
    buffers = machine.written(op)

    def test(arguments: list[Any], arrays: list[Any]) -> tuple[Any, list[Any], list[Any]]:
        (go, *out), memory = machine.within(buffers, arrays, lambda: machine.run_block(before, arguments))
        return jnp.asarray(go), _arrays(out, op.results), memory

    def turn(state: tuple[Any, list[Any], list[Any]]) -> tuple[Any, list[Any], list[Any]]:
        _, values, arrays = state
        out, memory = machine.within(buffers, arrays, lambda: machine.run_block(after, values))
        return test(_arrays(out, op.operands), memory)

    first = test(_arrays([machine[value] for value in op.operands], op.operands), [machine.memory[b] for b in buffers])
    _, out, memory = lax.while_loop(lambda state: state[0], turn, first)
    machine.values.update(zip(op.results, out, strict=True))
    machine.memory.update(zip(buffers, memory, strict=True))


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
