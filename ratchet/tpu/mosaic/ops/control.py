"""Control flow, and what has no effect on values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.module import Op, Value
from ratchet.tpu.mosaic.arrays import jax_dtype
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.report import OTHERWISE, THEN
from ratchet.tpu.mosaic.rules import Unsupported, rule


def _no_refs(executor: Executor, op: Op, values: tuple[Value, ...]) -> None:
    if any(value.type.kind == "memref" for value in values):
        raise Unsupported(f"{op.name} that passes on a memref")


def _arrays(values: list[Any], like: tuple[Value, ...]) -> list[Any]:
    return [jnp.asarray(x, jax_dtype(v.type.dtype)) for x, v in zip(values, like, strict=True)]


@rule("scf.if")
def _if(executor: Executor, op: Op) -> None:
    _no_refs(executor, op, op.results)
    condition = executor[op.operands[0]]

    def body(which: int) -> list[Any]:
        executor.count(op, which)
        return _arrays(executor.run_block(op.regions[which]), op.results)

    if isinstance(condition, np.generic):
        which = THEN if condition else OTHERWISE
        executor.count(op, which)
        executor.values.update(zip(op.results, executor.run_block(op.regions[which]), strict=True))
    elif executor.has_remote(op):
        _masked_if(executor, op, condition)
    else:
        executor.choose(condition, op, functools.partial(body, THEN), functools.partial(body, OTHERWISE))


def _masked_if(executor: Executor, op: Op, condition: Any) -> None:
    """Both branches on every device, each under its mask: devices that send must meet those that receive."""
    outer = executor.active
    results = []
    for which, taken in ((THEN, condition), (OTHERWISE, ~condition)):
        executor.active = taken if outer is None else outer & taken
        executor.count(op, which)
        results.append(_arrays(executor.run_block(op.regions[which]), op.results))
    executor.active = outer
    merged = [jnp.where(condition, a, b) for a, b in zip(*results, strict=True)] if op.results else []
    executor.values.update(zip(op.results, merged, strict=True))


def is_parallel(op: Op) -> bool:
    """Whether the iterations of a loop may run in any order."""
    return "sc.parallel_access" in op.attributes and not op.results


@rule("scf.for", attributes=("unsignedCmp", "sc.parallel_access", "sc.loop_unroll_factor"))
def _for(executor: Executor, op: Op) -> None:
    """A parallel loop that carries nothing runs backwards where cores run in the other order: it must not matter."""
    _no_refs(executor, op, op.results)
    low, high, step = (executor[value] for value in op.operands[:3])
    if op.attributes.get("unsignedCmp"):
        raise Unsupported("scf.for with an unsigned comparison")
    carried = _arrays([executor[value] for value in op.operands[3:]], op.results)
    index = jnp.asarray(low, jax_dtype(op.operands[0].type.dtype))

    def iterate(values: list[Any]) -> list[Any]:
        executor.count(op)
        number, *rest = values
        if executor.backwards is not None and is_parallel(op):
            last = low + lax.div(jnp.asarray(high - low - 1, index.dtype), jnp.asarray(step, index.dtype)) * step
            number = jnp.where(executor.backwards, low + last - number, number)
        return [values[0] + step, *_arrays(executor.run_block(op.regions[0], [number, *rest]), op.results)]

    constant = isinstance(low, np.generic) and isinstance(high, np.generic)
    _, *out = _repeat(executor, op, [index, *carried], lambda values: values[0] < high, iterate, together=constant)
    executor.values.update(zip(op.results, out, strict=True))


@rule("scf.while")
def _while(executor: Executor, op: Op) -> None:
    """``before`` may write memory and yields the condition: it runs first, and at the end of each iteration."""
    _no_refs(executor, op, op.results)
    before, after = op.regions

    def test(arguments: list[Any]) -> list[Any]:
        go, *out = executor.run_block(before, arguments)
        return [jnp.asarray(go), *_arrays(out, op.results)]

    def iterate(values: list[Any]) -> list[Any]:
        executor.count(op)
        return test(_arrays(executor.run_block(after, values[1:]), op.operands))

    first = test(_arrays([executor[value] for value in op.operands], op.operands))
    _, *out = _repeat(executor, op, first, lambda values: values[0], iterate, together=False)
    executor.values.update(zip(op.results, out, strict=True))


def _repeat(
    executor: Executor, op: Op, start: list[Any], going: Callable[[list[Any]], Any], iterate: Any, *, together: bool
) -> list[Any]:
    """``iterate`` the carried values while ``going``; the last ones.

    Devices that send must meet those that receive, so with remote operations inside, and unless all take equally many
    iterations (``together``), none leaves the loop before the last: those that are done go on under a mask.
    """
    buffers, outer = executor.written(op), executor.active
    memory = executor.contents(buffers)
    if not executor.has_remote(op) or (together and outer is None):
        values, memory = lax.while_loop(
            lambda state: going(state[0]),
            lambda state: executor.within(buffers, state[1], lambda: iterate(state[0])),
            (start, memory),
        )
    else:

        def mine(values: list[Any]) -> Any:
            return going(values) if outer is None else outer & going(values)

        def anyone(values: list[Any]) -> Any:
            return lax.psum(mine(values).astype(jnp.int32), executor.axes) > 0

        def advance(state: Any) -> Any:
            values, arrays, _ = state
            executor.active = active = mine(values)
            try:
                new, arrays = executor.within(buffers, arrays, lambda: iterate(values))
            finally:
                executor.active = outer
            values = [jnp.where(active, a, b) for a, b in zip(new, values, strict=True)]
            return values, arrays, anyone(values)

        values, memory, _ = lax.while_loop(lambda state: state[2], advance, (start, memory, anyone(start)))
    executor.memory.update(zip(buffers, memory, strict=True))
    return values


@rule("tpu.region", "memref.alloca_scope")
@rule("scf.execute_region", attributes=("no_inline",))
@rule("tpu.trace", attributes=("message", "level"))
def _region(executor: Executor, op: Op) -> None:
    executor.values.update(zip(op.results, executor.run_block(op.regions[0]), strict=True))


@rule("tpu.trace_start", "tpu.trace_stop", "tpu.trace_value", "tpu.delay", "tpu.log", "tpu.log_buffer",
      attributes=("message", "level", "label", "tag", "formatted", "shape", "operandSegmentSizes"))  # fmt: skip
def _no_effect(executor: Executor, op: Op) -> None:
    """Tracing, logging and delays change no value."""


@rule("tpu.assume_multiple", attributes=("multiple",), checks=True)
def _assume_multiple(executor: Executor, op: Op) -> None:
    value, multiple = executor[op.operands[0]], int(str(op.attributes["multiple"]))
    bad = jnp.any(lax.rem(jnp.asarray(value), jnp.asarray(multiple, value.dtype)) != 0) if multiple else True
    executor.report(Kind.FALSE_PROMISE, op, bad, f"the compiler relies on a multiple of {multiple}, and it is none")
    executor.result(op, value)


@rule("cf.assert", attributes=("msg",), checks=True)
def _assert(executor: Executor, op: Op) -> None:
    executor.report(Kind.FALSE_PROMISE, op, ~jnp.asarray(executor[op.operands[0]]), "an assertion does not hold")


@rule("tpu.iteration_bound", attributes=("dim",))
def _iteration_bound(executor: Executor, op: Op) -> None:
    executor.result(op, jnp.asarray(executor.bounds[int(str(op.attributes["dim"]))], jnp.int32))
