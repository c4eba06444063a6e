"""Operands of kernels that a program computes beside them: tables for scalar prefetch, bounds of a grid.

The program is executed as for its values, but returns the operands of kernels instead of its results. XLA removes all
that these do not depend on, kernels too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.calls import Call
from ratchet.tpu.mosaic.copies import Traced
from ratchet.tpu.mosaic.devices import arguments, compiled, device_lock
from ratchet.tpu.mosaic.lowering import CONFIG_WIDTH, lowered
from ratchet.tpu.mosaic.run import Loaded
from ratchet.tpu.mosaic.state import Options
from ratchet.tpu.mosaic.translation import function_of, layout_of
from ratchet.values.status import Refusal, Status

Request = Mapping[str, Sequence[int]]
"""Site of a call (``Call.site``) to numbers of its operands."""
Taken = Mapping[tuple[str, int], np.ndarray]
"""Site and number to an operand's values."""

_RUNS, _DIFFERS, _ROWS = 0, 1, 2
"""Positions in a call's report: how often it was executed, whether by operands that differ, and where those begin: a
row for each execution. Halves of words."""
_MOST_RUNS, _MOST_WORDS = 1 << 10, 1 << 18
"""Rows of a call, and all words of these; at least one row is kept."""
_UNKNOWN = -1
_HALF = 16


def operands(
    loaded: Loaded, instances: Sequence[Sequence[np.ndarray]], wanted: Request
) -> tuple[tuple[Taken, ...], ...]:
    """Values of kernels' operands: for each instance of the program's inputs one set per mesh index.

    Where a call is executed more than once, by operands that differ, each has one dimension more: that of executions.

    Raises:
        Refusal: ``SCHEDULE_UNKNOWN`` for a call that is executed more often with other operands than is kept,
            ``CANNOT_VERIFY`` for one that the program does not have.
    """
    program = loaded.program
    calls = {call.site: call for call in program.calls if call.site in wanted}
    if missing := set(wanted) - set(calls):
        raise Refusal(Status.CANNOT_VERIFY, f"the compiled program calls {min(missing)}, which the artefact does not")
    chips, options = program.devices, Options()
    sizes = {site: sum(_size(calls[site], number) for number in numbers) for site, numbers in wanted.items()}
    row = 2 * chips * max(1, *sizes.values())
    width = _ROWS + max(1, min(_MOST_RUNS, _MOST_WORDS // row)) * row
    order: list[str] = []
    whole = loaded.with_options()
    """Executed first where kernels are on several cores: their results are part of the configuration."""

    def translate(number: int, call: Call) -> Any:
        order.append(call.site)
        layout, traced = layout_of(program, options), Traced(shapes={}, sizes={})
        if number in whole.beside:
            execute = whole.beside.translate(number, call, layout)
        else:
            execute = function_of(program.kernels[number], call, options, layout, [], traced)

        def reporting(config: Any, *values: Any) -> Any:
            taken = [_halves(values[number]) for number in wanted.get(call.site, ())]
            return execute(config, *values)[0], _report(taken, call, row, chips)

        return reporting

    words = whole.beside.words
    run = compiled(program, lowered(program.exported, translate, width, _merged, config=words), results=slice(-1, None))
    found = []
    for inputs in instances:
        placed = loaded.place(inputs)
        if whole.beside:
            whole.run(placed)
        arrays = arguments(program, placed, whole.beside.config((0,) * CONFIG_WIDTH))
        with device_lock(program):
            rows = np.asarray(run(*arrays)[0]).reshape(-1, width)[: len(order)]
        reports = dict(zip(order, rows, strict=True))
        found.append(
            tuple(
                dict(
                    pair
                    for site in wanted
                    for pair in _read(calls[site], wanted[site], reports[site], row, place, chips)
                )
                for place in range(chips)
            )
        )
    return tuple(found)


def _size(call: Call, number: int) -> int:
    return math.prod(call.inputs[number].shape)


def _halves(values: jax.Array) -> jax.Array:
    """Each element as two numbers from 0 to 65535: what a chip does not know can be -1, and the largest counts."""
    wide = values if values.dtype.itemsize == 4 else values.astype(jnp.int32)
    words = lax.bitcast_convert_type(wide, jnp.uint32).reshape(-1)
    return jnp.concatenate([words >> _HALF, words & (1 << _HALF) - 1]).astype(jnp.int32)


def _report(taken: Sequence[jax.Array], call: Call, row: int, chips: int) -> jax.Array:
    """What one execution of a call, on one chip, says of its operands: a row."""
    own = jnp.concatenate([jnp.zeros((0,), jnp.int32), *taken])
    own = jnp.pad(own, (0, row // chips - own.size), constant_values=_UNKNOWN)
    place = lax.axis_index(tuple(name for name, _ in call.mesh)) if call.mesh else 0
    others = jnp.full((chips, own.size), _UNKNOWN, jnp.int32)
    return others.at[place].set(own).reshape(-1)


def _merged(before: jax.Array, now: jax.Array) -> jax.Array:
    """The rows of the executions before with one more, where there is room."""
    runs, rows = jnp.maximum(before[_RUNS], 0), before[_ROWS:].reshape(-1, now.size)
    differs = jnp.any((rows[:1] >= 0) & (now >= 0) & (rows[:1] != now))
    rows = rows.at[runs].set(now, mode="drop")
    head = jnp.stack([runs + 1, jnp.maximum(before[_DIFFERS], differs.astype(jnp.int32))])
    return jnp.concatenate([head, rows.reshape(-1)])


def _read(
    call: Call, numbers: Sequence[int], report: np.ndarray, row: int, place: int, chips: int
) -> list[tuple[tuple[str, int], np.ndarray]]:
    runs, differs = int(report[_RUNS]), report[_DIFFERS] > 0
    rows = report[_ROWS:].reshape(-1, chips, row // chips)
    if differs and runs > len(rows):
        raise Refusal(
            Status.SCHEDULE_UNKNOWN,
            f"the kernel {call.name} is executed {runs} times, by tables that differ and that XLA computes; wanted "
            f"{len(rows)} at most for tables of this size: smaller ones, or fewer turns of the loop around it",
        )
    rows = rows[: runs if differs else 1]
    own = rows[:, place] if (rows[:, place] >= 0).any() else rows[:, 0]  # no chip has tables of its own: the first's
    found, start = [], 0
    for number in numbers:
        aval, size = call.inputs[number], _size(call, number)
        halves = own[:, start : start + 2 * size].reshape(-1, 2, size)
        if (halves < 0).any():
            raise Refusal(Status.SCHEDULE_UNKNOWN, f"the kernel {call.name} was not executed on mesh index {place}")
        words = (halves[:, 0].astype(np.uint32) << _HALF) | halves[:, 1].astype(np.uint32)
        wide = words.view(aval.dtype) if aval.dtype.itemsize == 4 else words.view(np.int32).astype(aval.dtype)
        tables = wide.reshape(-1, *aval.shape)
        found.append(((call.site, number), tables if differs else tables[0]))
        start += 2 * size
    return found
