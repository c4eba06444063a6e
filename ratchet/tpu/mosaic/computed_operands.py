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
from ratchet.tpu.mosaic.lowering import lowered
from ratchet.tpu.mosaic.run import Loaded
from ratchet.tpu.mosaic.state import Options
from ratchet.tpu.mosaic.translation import function_of, layout_of
from ratchet.values.status import Refusal, Status

Request = Mapping[str, Sequence[int]]
"""Site of a call (``Call.site``) to numbers of its operands."""
Taken = Mapping[tuple[str, int], np.ndarray]
"""Site and number to an operand's values."""

_REPEATED = 0
"""Position in a call's report: 1 if another execution of the same call had other operands. Halves of words follow."""
_UNKNOWN = -1
_HALF = 16


def operands(
    loaded: Loaded, instances: Sequence[Sequence[np.ndarray]], wanted: Request
) -> tuple[tuple[Taken, ...], ...]:
    """Values of kernels' operands: for each instance of the program's inputs one set per mesh index.

    Raises:
        Refusal: ``SCHEDULE_UNKNOWN`` for a call that is executed more than once with other operands, ``CANNOT_VERIFY``
            for one that the program does not have.
    """
    program = loaded.program
    calls = {call.site: call for call in program.calls if call.site in wanted}
    if missing := set(wanted) - set(calls):
        raise Refusal(Status.CANNOT_VERIFY, f"the compiled program calls {min(missing)}, which the artefact does not")
    chips, options = program.devices, Options()
    words = {site: sum(_size(calls[site], number) for number in numbers) for site, numbers in wanted.items()}
    width = 1 + 2 * chips * max(words.values(), default=0)
    order: list[str] = []

    def translate(number: int, call: Call) -> Any:
        order.append(call.site)
        layout, traced = layout_of(program, options), Traced(shapes={}, sizes={})
        execute = function_of(program.kernels[number], call, options, layout, [], traced)

        def reporting(config: Any, *values: Any) -> Any:
            taken = [_halves(values[number]) for number in wanted.get(call.site, ())]
            return execute(config, *values)[0], _report(taken, call, width, chips)

        return reporting

    run = compiled(program, lowered(program.exported, translate, width, _merge), results=slice(-1, None))
    placed = [arguments(program, loaded.place(inputs)) for inputs in instances]
    found = []
    for arrays in placed:
        with device_lock(program):
            rows = np.asarray(run(*arrays)[0]).reshape(-1, width)[: len(order)]
        reports = dict(zip(order, rows, strict=True))
        found.append(
            tuple(
                dict(pair for site in wanted for pair in _read(calls[site], wanted[site], reports[site], place, chips))
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


def _report(taken: Sequence[jax.Array], call: Call, width: int, chips: int) -> jax.Array:
    """What one execution of a call, on one chip, says of its operands."""
    own = jnp.concatenate([jnp.zeros((0,), jnp.int32), *taken])
    own = jnp.pad(own, (0, (width - 1) // chips - own.size), constant_values=_UNKNOWN)
    place = lax.axis_index(tuple(name for name, _ in call.mesh)) if call.mesh else 0
    others = jnp.full((chips, own.size), _UNKNOWN, jnp.int32)
    return jnp.concatenate([jnp.zeros((1,), jnp.int32), others.at[place].set(own).reshape(-1)])


def _merge(before: jax.Array, now: jax.Array) -> jax.Array:
    """The first execution's operands, and whether another one's differ."""
    differs = jnp.any((before >= 0) & (now >= 0) & (before != now))
    merged = jnp.where(before >= 0, before, now)
    return merged.at[_REPEATED].set(jnp.maximum(merged[_REPEATED], differs.astype(jnp.int32)))


def _read(
    call: Call, numbers: Sequence[int], report: np.ndarray, place: int, chips: int
) -> list[tuple[tuple[str, int], np.ndarray]]:
    if report[_REPEATED] > 0:
        raise Refusal(
            Status.SCHEDULE_UNKNOWN,
            f"the kernel {call.name} is executed more than once, by tables that differ and that XLA computes; wanted a "
            "pallas_call of its own for each (call it from two functions, or outside of the loop)",
        )
    rows = report[1:].reshape(chips, -1)
    row = rows[place] if (rows[place] >= 0).any() else rows[0]  # where no chip has tables of its own, the first has all
    found, start = [], 0
    for number in numbers:
        aval, size = call.inputs[number], _size(call, number)
        halves = row[start : start + 2 * size].reshape(2, size).astype(np.uint32)
        if (row[start : start + 2 * size] < 0).any():
            raise Refusal(Status.SCHEDULE_UNKNOWN, f"the kernel {call.name} was not executed on mesh index {place}")
        words = (halves[0] << _HALF) | halves[1]
        wide = words.view(aval.dtype) if aval.dtype.itemsize == 4 else words.view(np.int32).astype(aval.dtype)
        found.append(((call.site, number), wide.reshape(aval.shape)))
        start += 2 * size
    return found
