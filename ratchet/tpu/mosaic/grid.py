"""The grid of one kernel: its steps in order, and what is carried from step to step.

What the kernel writes (outputs, windows of outputs, scratch, semaphores) is carried and updated in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.signature import Kernel
from ratchet.tpu.mosaic import in_flight
from ratchet.tpu.mosaic.apart import Apart
from ratchet.tpu.mosaic.arrays import Array, Index, known
from ratchet.tpu.mosaic.copies import BLOCKS, COPIED, COPIES, Traced, begin
from ratchet.tpu.mosaic.events import LOG, LOGGED
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.findings import KINDS, Finding, Kind
from ratchet.tpu.mosaic.in_flight import IN_FLIGHT
from ratchet.tpu.mosaic.operands import Operands, Types
from ratchet.tpu.mosaic.report import COUNTS, DIGESTS, FLAGS, Layout, report_of
from ratchet.tpu.mosaic.rules import draws
from ratchet.tpu.mosaic.state import BARRIER, DRAWN, Options


def run_kernel(  # noqa: PLR0913 - the operands of the call, and by keyword what the program adds to them
    kernel: Kernel, arrays: Sequence[Array], outputs: Types, *, config: Array, options: Options, sites: list[Finding],
    traced: Traced, layout: Layout, device: Array | None = None, devices: int = 1, axes: tuple[str, ...] = (),
    logs: bool = False, behind_barrier: bool = True,
) -> tuple[list[Array], Array]:  # fmt: skip
    """Trace the execution of a kernel.

    Args:
        arrays: Operands of the custom call.
        outputs: Shape and dtype of each result.
        config: int32[3], see ``lowering.CONFIG_WIDTH``.
        sites: Receives the places where findings are checked.
        traced: Receives what is known of its copies.
        layout: Of the report.
        device: Logical id of this device, where several run it; ``devices`` is how many, along ``axes`` of the mesh.
        logs: Whether events are logged, for a kernel that begins ``behind_barrier`` of all devices.

    Returns:
        The results, and ``report.report_of`` the run.
    """
    executor = (Apart if options.apart else Executor)(
        kernel=kernel.module, outputs=len(outputs), options=options, fill=config[1], padding=config[2],
        sites=sites, device=device, devices=devices, axes=axes,
    )  # fmt: skip
    if logs:
        executor.start_log(behind_barrier=behind_barrier)
    executor.memory[FLAGS] = jnp.full((2 * len(KINDS),), -1, jnp.int32)
    executor.memory[BARRIER] = jnp.int32(0)
    if draws(kernel.module):
        executor.memory[DRAWN] = jnp.zeros(DRAWN.shape, DRAWN.dtype)
    executor.memory[COUNTS] = jnp.zeros(layout.counts, jnp.int32)
    begin(executor.memory, layout.blocks, layout.copies)
    executor.memory[DIGESTS] = jnp.zeros(options.digests, jnp.int32)
    if options.on_wait:
        executor.memory[IN_FLIGHT] = in_flight.empty()
    dynamic = iter(jnp.asarray(a, jnp.int32).reshape(()) for a in arrays[: kernel.dynamic_bounds])
    executor.bounds = tuple(next(dynamic) if b is None else b for b in kernel.bounds)
    order = Order(kernel=kernel, bounds=executor.bounds, seed=config[0])
    operands = Operands(kernel, arrays[kernel.dynamic_bounds :], outputs, executor)
    traced.shapes, traced.sizes = operands.shapes, executor.sizes
    return _Grid(kernel, executor, operands, order).run()


class _Grid:
    def __init__(self, kernel: Kernel, executor: Executor, operands: Operands, order: Order) -> None:
        self.kernel, self.executor, self.operands, self.order = kernel, executor, operands, order
        self.bounds = order.bounds

    def run(self) -> tuple[list[Array], Array]:
        executor, operands = self.executor, self.operands
        steps: Any = math.prod(self.bounds) if all(map(known, self.bounds)) else None
        if steps is None:
            steps = jnp.int32(1)
            for bound in self.bounds:
                steps = steps * bound
        if known(steps) and int(steps) == 1:
            self._step([np.int32(0)] * len(self.bounds), operands.nowhere)
            last: Any = np.int32(0)
        else:
            self._loop(steps)
            last = self.order.linear(self.order.coordinates(jnp.asarray(steps - 1, jnp.int32)))
        for operand, _ in operands.followed:
            if operand.is_output:
                executor.digest(operand.index, executor.memory[operands.windows[operand.argument]], step=last)
        executor.step = jnp.int32(-2)
        if IN_FLIGHT in executor.memory:
            executor.contents([])
            lost = in_flight.lost(executor.memory[IN_FLIGHT])
            executor.report(Kind.TOO_MANY_COPIES, None, lost, f"more than {in_flight.SLOTS} copies are in flight")
        results = operands.results()
        self._check_semaphores()
        executor.flush()
        return results, report_of(executor.memory)

    def _step(self, coordinates: list[Index], last: list[list[Array]], before: Any = None) -> list[list[Array]]:
        """Run the kernel once; as ``Operands.move``."""
        executor = self.executor
        executor.step = self.order.linear(coordinates)
        now = self.operands.move(coordinates, last, before)
        body = self.kernel.main.body
        rest = body.arguments[len(self.bounds) :]
        executor.run_block(body, [*coordinates, *(executor.values[value] for value in rest)])
        self.operands.write_back(now)
        return now

    def _loop(self, steps: Index) -> None:
        executor, operands = self.executor, self.operands
        roots = {executor.values[root].buffer for root in operands.written if root in executor.values}
        kept = {
            FLAGS,
            COUNTS,
            DIGESTS,
            BARRIER,
            DRAWN,
            BLOCKS,
            COPIES,
            COPIED,
            LOG,
            LOGGED,
            *executor.shadows,
            *roots,
            *operands.windows.values(),
        }
        carried = [b for b in executor.memory if b in kept]
        carried += [operands.whole[True, o.index].buffer for o, _ in operands.followed if o.is_output]
        carried = list(dict.fromkeys(carried))

        def advance(state: tuple[Array, list[list[Array]], list[Array]]) -> tuple[Array, Any, list[Array]]:
            step, last, arrays = state
            before = None
            if executor.options.digests:
                before = jnp.where(step > 0, self.order.linear(self.order.coordinates(jnp.maximum(step - 1, 0))), -1)
            coordinates = self.order.coordinates(step)
            executor.steps_before = step
            now, after = executor.within(carried, arrays, lambda: self._step(coordinates, last, before))
            return step + 1, now, after

        start = (jnp.int32(0), operands.nowhere, executor.contents(carried))
        if known(steps) or not any(map(executor.has_remote, self.kernel.main.body.operations)):
            _, _, after = lax.while_loop(lambda state: state[0] < steps, advance, start)
        else:
            after = self._together(steps, advance, start)
        executor.memory.update(zip(carried, after, strict=True))

    def _together(self, steps: Array, advance: Any, start: Any) -> list[Array]:
        """Devices that send must meet those that receive: one that has done its steps goes on, and keeps nothing."""

        def masked(state: Any) -> Any:
            before, _ = state
            self.executor.active = mine = before[0] < steps
            after = jax.tree.map(lambda new, old: jnp.where(mine, new, old), advance(before), before)
            self.executor.active = None
            return after, anyone(after[0])

        def anyone(step: Array) -> Array:
            return lax.psum((step < steps).astype(jnp.int32), self.executor.axes) > 0

        (_, _, after), _ = lax.while_loop(lambda state: state[1], masked, (start, anyone(start[0])))
        return after  # type: ignore[no-any-return]

    def _check_semaphores(self) -> None:
        executor = self.executor
        for value in self.kernel.scratch:
            if "semaphore" in value.type.dtype:
                executor.check_at_rest(value)
        barrier = next((op for op in executor.kernel.operations() if op.name == "tpu.sem_barrier"), None)
        if barrier is not None:
            executor.check_at_rest(barrier.results[0])


# --- the order of steps ---------------------------------------------------------------------------


@dataclass(kw_only=True)
class Order:
    """Which coordinates the ``n``-th step has, under one seed: lexicographic, parallel dimensions shuffled."""

    kernel: Kernel
    bounds: tuple[Index, ...]
    seed: Array
    """int32 scalar; 0 is lexicographic."""
    _permutations: list[Array | None] = field(init=False)

    def __post_init__(self) -> None:
        self._permutations = [
            _permutation(self.seed, i, bound) if "parallel" in semantics else None
            for i, (bound, semantics) in enumerate(zip(self.kernel.bounds, self.kernel.semantics, strict=True))
        ]

    def coordinates(self, step: Array) -> list[Index]:
        rest, out = step, []
        for i in reversed(range(len(self.bounds))):
            bound = self.bounds[i]
            if i == 0:
                coordinate = rest
            else:
                coordinate, rest = lax.rem(rest, jnp.int32(bound)), lax.div(rest, jnp.int32(bound))
            if known(bound) and int(bound) == 1:
                coordinate = np.int32(0)
            order = self._permutations[i]
            if order is not None:
                coordinate = lax.dynamic_slice(order, (coordinate,), (1,), allow_negative_indices=False)[0]
            elif self.kernel.bounds[i] is None and "parallel" in self.kernel.semantics[i]:
                coordinate = jnp.where(self.seed == 0, coordinate, bound - 1 - coordinate)
            out.append(coordinate)
        return out[::-1]

    def linear(self, coordinates: Sequence[Index]) -> Index:
        """Row-major number of a step, whenever it runs."""
        total: Index = np.int32(0)
        for coordinate, bound in zip(coordinates, self.bounds, strict=True):
            total = total * bound + coordinate
        return total


def _permutation(seed: Array, dimension: int, bound: int | None) -> Array | None:
    """The identity for seed 0, otherwise scattered by the seed and never beginning with step 0."""
    if bound is None or bound <= 1:
        return None
    i = jnp.arange(bound, dtype=jnp.int32)
    mixed = (i + jnp.int32(1 + dimension)) * jnp.int32(-1640531535) * (2 * seed + 1)
    scattered = jnp.argsort(mixed ^ lax.shift_right_logical(mixed, 15)).astype(jnp.int32)
    scattered = jnp.where(scattered[0] == 0, scattered[::-1], scattered)
    return jnp.where(seed == 0, i, scattered)
