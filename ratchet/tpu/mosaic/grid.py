"""The grid of one kernel: its steps in order, its windows, and what is carried from step to step.

Inputs are invariants of the loop: a window of an input is a view of the whole array. What the kernel writes
(outputs, windows of outputs, scratch, semaphores) is carried and updated in place.

The compiler's pipeline reads the next step's windows while a step runs, and writes an output's window back while the
next one does. With ``Options.late_windows`` each element of an array that an input shares with an output is stamped
with the last step in which it may still be on its way; one that the pipeline reads that early is memory never written.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.module import Op, Value
from ratchet.tpu.mlir.signature import Kernel, Operand, Window
from ratchet.tpu.mosaic import in_flight
from ratchet.tpu.mosaic.dtypes import jax_dtype
from ratchet.tpu.mosaic.events import LOG, LOGGED
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.findings import KINDS, Kind, Site
from ratchet.tpu.mosaic.in_flight import UNDER_WAY
from ratchet.tpu.mosaic.memory import Array, Buffer, Index, Slice, Whole, decode, encode, known, take
from ratchet.tpu.mosaic.operands import as_kernel_dtype, in_hbm
from ratchet.tpu.mosaic.ops.memory import allocate
from ratchet.tpu.mosaic.order import Order
from ratchet.tpu.mosaic.report import COUNTS, FLAGS, WITNESS, report_of
from ratchet.tpu.mosaic.rules import RULES, root_of
from ratchet.tpu.mosaic.state import BARRIER, Options

_NEVER = -(2**30)
"""The stamp of what no step has written."""


def run_kernel(  # noqa: PLR0913 - the operands of the call, and by keyword what the program adds to them
    kernel: Kernel, arrays: Sequence[Array], output_types: Sequence[tuple[tuple[int, ...], np.dtype]],
    *,
    config: Array, options: Options, sites: list[Site], counted: int, device: Array | None = None, devices: int = 1,
    axes: tuple[str, ...] = (), logs: bool = False, behind_barrier: bool = True,
) -> tuple[list[Array], Array]:  # fmt: skip
    """Trace the execution of a kernel.

    Args:
        arrays: Operands of the custom call.
        output_types: Shape and dtype of each result.
        config: int32[3], see ``lowering.CONFIG_WIDTH``.
        sites: Receives the places where findings are checked.
        counted: How many counters are reported; at least those of ``counting.counters``.
        device: Logical id of this device, where several run it; ``devices`` is how many, along ``axes`` of the mesh.
        logs: Whether events are logged, for a kernel that begins ``behind_barrier`` of all devices.

    Returns:
        The results, and ``report.report_of`` the run.
    """
    executor = Executor(
        kernel=kernel.module, outputs=len(output_types), options=options, fill=config[1], padding=config[2],
        sites=sites, device=device, devices=devices, axes=axes,
    )  # fmt: skip
    if logs:
        executor.start_log(behind_barrier=behind_barrier)
    return _Run(kernel, arrays, output_types, executor=executor, seed=config[0], counted=counted).run()


class _Run:
    def __init__(
        self, kernel: Kernel, arrays: Sequence[Array], output_types: Sequence[tuple[tuple[int, ...], np.dtype]],
        *, executor: Executor, seed: Array, counted: int,
    ) -> None:  # fmt: skip
        self.counted = counted
        self.kernel, self.output_types, self.executor = kernel, output_types, executor
        dynamic = [jnp.asarray(a, jnp.int32).reshape(()) for a in arrays[: kernel.dynamic_bounds]]
        self.inputs = arrays[kernel.dynamic_bounds :]
        feed = iter(dynamic)
        self.bounds: tuple[Index, ...] = tuple(next(feed) if b is None else b for b in kernel.bounds)
        self.executor.bounds = self.bounds
        self.order = Order(kernel=kernel, bounds=self.bounds, seed=seed)
        self.written_roots = {
            root_of(value)
            for function in (kernel.main,)
            for op in function.body.operations
            for nested in op.walk()
            for value in _writes(nested)
        }
        self.whole: dict[tuple[bool, int], Whole] = {}
        """The HBM array of each input and output."""
        self.output_windows: list[tuple[Operand, Window, Buffer]] = []
        self.input_windows: list[tuple[Operand, Window, Buffer]] = []
        """Windows of inputs that the kernel writes to: they are memory of their own."""

    # --- memory ---

    def _set_up(self) -> None:
        executor, kernel = self.executor, self.kernel
        executor.memory[FLAGS] = jnp.full((2 * len(KINDS),), -1, jnp.int32)
        executor.memory[BARRIER] = jnp.int32(0)
        executor.memory[COUNTS] = jnp.zeros(self.counted, jnp.int32)
        executor.memory[WITNESS] = jnp.zeros(executor.options.witness, jnp.int32)
        if executor.options.late_dma:
            executor.memory[UNDER_WAY] = in_flight.empty(executor.zero)
        inputs = {o.index: o for o in kernel.operands if not o.is_output}
        executor.same_array = {
            inputs[o.alias].argument: o.argument for o in kernel.operands if o.is_output and o.alias in inputs
        }
        for value, array in zip(kernel.prefetch, self.inputs, strict=False):
            dtype = jax_dtype(value.type.dtype)
            buffer = Buffer(name="scalar prefetch", shape=value.type.shape, dtype=dtype, space="smem")
            executor.memory[buffer] = encode(as_kernel_dtype(array, dtype)).reshape(value.type.shape)
            executor.values[value] = Whole(buffer)
        data = self.inputs[len(kernel.prefetch) :]
        for operand in sorted(kernel.operands, key=lambda o: not o.is_output):  # outputs first: inputs may alias them
            self._set_up_operand(operand, data)
        for value in kernel.scratch:
            executor.values[value] = allocate(executor, value, "scratch")

    def _set_up_operand(self, operand: Operand, data: Sequence[Array]) -> None:
        executor, kernel, type_ = self.executor, self.kernel, operand.argument.type
        if operand.is_output:
            shape, _ = self.output_types[operand.index]
            array = data[operand.alias] if operand.alias is not None else None
        else:
            array = data[operand.index]
            shape = tuple(array.shape)
        if not operand.is_output and operand.alias is not None:
            whole = self.whole[True, operand.alias]
        else:
            buffer = Buffer(
                name=f"{'output' if operand.is_output else 'input'} {operand.index}",
                shape=shape,
                dtype=jax_dtype(type_.dtype),
                space="hbm",
                is_input=not operand.is_output,
            )
            executor.memory[buffer] = in_hbm(executor, kernel, operand, shape, array)
            whole = Whole(buffer)
        self.whole[operand.is_output, operand.index] = whole
        if operand.window is None:
            if tuple(type_.shape) != tuple(shape):
                raise self.kernel.module.refusal(f"an operand of {shape} seen as {type_}")
            executor.values[operand.argument] = whole
            executor.add_shadows(operand.argument, whole.buffer)
            return
        written = operand.argument in self.written_roots
        if operand.is_output or written or operand.alias is not None:
            window = Buffer(
                name=f"window of {whole.buffer.name}",
                shape=operand.window.shape,
                dtype=whole.dtype,
                space=type_.space,
                is_input=not operand.is_output and operand.alias is None,
            )
            executor.memory[window] = executor.poison(window.shape, window.dtype)
            executor.add_shadows(operand.argument, window)
            if operand.alias is not None and not operand.is_output:
                self._add_stamps(whole.buffer)
            executor.values[operand.argument] = Whole(window)
            (self.output_windows if operand.is_output else self.input_windows).append((operand, operand.window, window))

        elif executor.options.late_dma and operand.argument in executor.dma_sources:
            executor.ends.add(whole.buffer)
            executor.moving.add(whole.buffer)

    def _add_stamps(self, buffer: Buffer) -> None:
        executor = self.executor
        if executor.options.late_windows:
            stamps = Buffer(
                name=f"stamps of {buffer.name}", shape=buffer.shape, dtype=np.dtype(np.int32), space="judge"
            )
            executor.stamps[buffer] = stamps
            executor.memory[stamps] = jnp.full(executor.memory[buffer].shape, _NEVER, jnp.int32)

    # --- one step ---

    def _starts(self, operand: Operand, window: Window, coordinates: Sequence[Index]) -> list[Index]:
        """Element offsets of this step's block in the padded array; a finding where it leaves the array."""
        executor = self.executor
        prefetch = [executor.values[value] for value in self.kernel.prefetch]
        indices = executor.run_block(window.transform.body, [*coordinates, *prefetch])
        whole = self.whole[operand.is_output, operand.index]
        bad: Any = False
        starts = []
        for d, (index, block, dim) in enumerate(zip(indices, window.shape, whole.shape, strict=True)):
            if window.element:
                start = index + window.low[d]
                inside = dim + window.low[d] + window.high[d] - block
                outside = (start < 0) | (start > inside)
            else:
                start = index * np.int32(block)
                outside = (index < 0) | (index >= -(-dim // block))
            outside = bool(outside) if known(index) else outside
            bad = outside if bad is False else bad | outside
            starts.append(start)
        what = "output" if operand.is_output else "input"
        *computing, end = window.transform.body.operations  # constants and the end have no place in the source
        op = next((op for op in reversed(computing) if not op.name.endswith("constant")), end)
        executor.report(
            Kind.WINDOW_OUT_OF_BOUNDS, op, bad,
            f"the index map of {what} {operand.index} points a block of {window.shape} outside {whole.shape}",
        )  # fmt: skip
        return starts

    def _step(self, coordinates: list[Index], last: list[list[Array]], before: Any = None) -> list[list[Array]]:
        """Run the kernel once; the block offsets of the windows that ``_followed`` says.

        ``last`` are those of the step before, which had the linear number ``before``, negative for the first step.
        """
        executor = self.executor
        executor.step = self.order.linear(coordinates)
        now: list[list[Array]] = []
        previous = iter(last)
        for operand in self.kernel.operands:
            if operand.window is None:
                continue
            starts = self._starts(operand, operand.window, coordinates)
            own = self._own(operand)
            whole = self.whole[operand.is_output, operand.index]
            moved: Any = True
            if operand in self._followed:
                now.append([jnp.asarray(s, jnp.int32) for s in starts])
                moved = jnp.any(jnp.stack(now[-1]) != jnp.stack(next(previous)))
                self._check_moved(whole.buffer if own is None else own, moved)
            if own is None:
                executor.values[operand.argument] = Slice(_Padded(whole), starts, operand.window.shape)
            elif operand.is_output:
                if before is not None:
                    executor.witness(operand.index, executor.memory[own], step=before, when=moved & (before >= 0))
                fresh = executor.poison(own.shape, own.dtype)
                executor.memory[own] = jnp.where(moved, fresh, executor.memory[own])
            else:
                fresh = self._fetched(operand.window, whole.buffer, now[-1])
                executor.memory[own] = jnp.where(moved, fresh, executor.memory[own])
        executor.run_block(self.kernel.main.body, [*coordinates, *(executor.values[v] for v in self._rest())])
        for operand, starts in zip(self._followed, now, strict=True):
            if operand.is_output:
                self._write_back(operand, starts)
        return now

    def _own(self, operand: Operand) -> Buffer | None:
        """The memory of a window that is not a view of an input."""
        return next((w for o, _, w in (*self.input_windows, *self.output_windows) if o is operand), None)

    @functools.cached_property
    def _followed(self) -> list[Operand]:
        """The operands of whose windows each step has to know whether they moved."""
        executor = self.executor
        arrays = {key for key, whole in self.whole.items() if whole.buffer in executor.ends}
        return [
            operand
            for operand in self.kernel.operands
            if operand.window is not None
            and (self._own(operand) is not None or (operand.is_output, operand.index) in arrays)
        ]

    def _check_moved(self, window: Buffer, moved: Any) -> None:
        """A copy of the kernel's that reads or writes a window has to be waited for before the pipeline moves it."""
        shape = self.executor.memory[window].shape
        self.executor.check_under_way(None, window, ((0,) * len(shape), shape), "the next block comes into", moved)

    def _fetched(self, window: Window, buffer: Buffer, starts: list[Array]) -> Array:
        """An input's block, as the pipeline reads it ``window.buffers - 1`` steps ahead."""
        executor = self.executor
        block = take(executor.memory[buffer], starts, window.shape)
        if buffer not in executor.stamps:
            return block
        stamps = take(executor.memory[executor.stamps[buffer]], starts, window.shape)
        ahead = executor.turn - (window.buffers - 1)
        return jnp.where(stamps >= ahead, executor.poison(window.shape, buffer.dtype), block)

    def _write_back(self, operand: Operand, starts: list[Array]) -> None:
        executor, own = self.executor, self._own(operand)
        assert own is not None
        assert operand.window is not None
        buffer = self.whole[True, operand.index].buffer
        written = {buffer: executor.memory[own]}
        if buffer in executor.stamps:
            until = executor.turn + operand.window.buffers - 1
            written[executor.stamps[buffer]] = jnp.full(own.shape, until, jnp.int32)
        for array, block in written.items():
            executor.memory[array] = lax.dynamic_update_slice(
                executor.memory[array], block, starts, allow_negative_indices=False
            )

    def _rest(self) -> tuple[Value, ...]:
        return self.kernel.main.body.arguments[len(self.bounds) :]

    # --- all steps ---

    def run(self) -> tuple[list[Array], Array]:
        self._set_up()
        executor = self.executor
        never = [[jnp.int32(-(2**31))] * len(o.window.shape) for o in self._followed if o.window is not None]
        steps: Any = math.prod(self.bounds) if all(map(known, self.bounds)) else None
        if steps is None:
            steps = jnp.int32(1)
            for bound in self.bounds:
                steps = steps * bound
        if known(steps) and int(steps) == 1:
            self._step([np.int32(0)] * len(self.bounds), never)
            last: Any = np.int32(0)
        else:
            self._loop(steps, never)
            last = self.order.linear(self.order.coordinates(jnp.asarray(steps - 1, jnp.int32)))
        for operand, _, window in self.output_windows:
            executor.witness(operand.index, executor.memory[window], step=last)
        executor.step = jnp.int32(-2)
        if UNDER_WAY in executor.memory:
            executor.contents([])
            lost = in_flight.lost(executor.memory[UNDER_WAY])
            executor.report(Kind.TOO_MANY_COPIES, None, lost, f"more than {in_flight.SLOTS} copies are under way")
        outputs = []
        for i, (shape, dtype) in enumerate(self.output_types):
            whole = self.whole[True, i]
            array = take(executor.memory[whole.buffer], (0,) * len(shape), shape)
            outputs.append(as_kernel_dtype(decode(array, whole.dtype), dtype))
        self._semaphores_at_rest()
        executor.flush()
        return outputs, report_of(executor.memory)

    def _loop(self, steps: Index, never: list[list[Array]]) -> None:
        executor = self.executor
        roots = {executor.values[root].buffer for root in self.written_roots if root in executor.values}
        kept = {FLAGS, COUNTS, WITNESS, BARRIER, LOG, LOGGED, *executor.shadows, *roots}
        carried = [b for b in executor.memory if b in kept or b.name.startswith("window of ")]
        carried += [self.whole[True, o.index].buffer for o, _, _ in self.output_windows]
        carried = list(dict.fromkeys(carried))

        def turn(state: tuple[Array, list[list[Array]], list[Array]]) -> tuple[Array, list[list[Array]], list[Array]]:
            step, last, arrays = state
            before = None
            if executor.options.witness:
                before = jnp.where(step > 0, self.order.linear(self.order.coordinates(jnp.maximum(step - 1, 0))), -1)
            coordinates = self.order.coordinates(step)
            executor.turn = step
            now, after = executor.within(carried, arrays, lambda: self._step(coordinates, last, before))
            return step + 1, now, after

        start = (jnp.int32(0), never, executor.contents(carried))
        if known(steps) or not any(map(executor.has_remote, self.kernel.main.body.operations)):
            _, _, after = lax.while_loop(lambda state: state[0] < steps, turn, start)
        else:
            after = self._together(steps, turn, start)
        executor.memory.update(zip(carried, after, strict=True))

    def _together(self, steps: Array, turn: Any, start: Any) -> list[Array]:
        """Devices that send must meet those that receive: one that has done its steps turns on, and keeps nothing."""

        def advance(state: Any) -> Any:
            before, _ = state
            self.executor.active = mine = before[0] < steps
            after = jax.tree.map(lambda new, old: jnp.where(mine, new, old), turn(before), before)
            self.executor.active = None
            return after, anyone(after[0])

        def anyone(step: Array) -> Array:
            return lax.psum((step < steps).astype(jnp.int32), self.executor.axes) > 0

        (_, _, after), _ = lax.while_loop(lambda state: state[1], advance, (start, anyone(start[0])))
        return after  # type: ignore[no-any-return]

    def _semaphores_at_rest(self) -> None:
        executor = self.executor
        for value in self.kernel.scratch:
            if "semaphore" in value.type.dtype:
                executor.check_at_rest(value)
        barrier = next((op for op in executor.kernel.operations() if op.name == "tpu.sem_barrier"), None)
        if barrier is not None:
            executor.check_at_rest(barrier.results[0])


class _Padded(Whole):
    """All of a buffer's array, padding included, for windows whose offsets count from the padding."""

    def __init__(self, whole: Whole) -> None:
        super().__init__(whole.buffer)


def _writes(op: Op) -> list[Value]:
    rule = RULES.get(op.name)
    return list(rule.writes(op)) if rule else []
