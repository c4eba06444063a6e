"""The operands of one kernel: their arrays in HBM, and the windows that the pipeline moves over them.

Inputs are invariants of the grid: a window of an input is a view of the whole array. Windows of outputs, and of inputs
that the kernel writes to, are memory of their own.

The compiler's pipeline reads the next step's windows while a step runs, and writes an output's window back while the
next one does. With ``Options.windows_ahead`` each element of an array that an input shares with an output is stamped
with the last step in which it may still be on its way; one that the pipeline reads that early is memory never written.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.module import Op, Value
from ratchet.tpu.mlir.signature import Kernel, Operand, Window
from ratchet.tpu.mosaic.arrays import Array, Index, bits, decode, encode, jax_dtype, known, take
from ratchet.tpu.mosaic.copies import BLOCKS, first_element, log_step, number_of
from ratchet.tpu.mosaic.executor import Executor
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.memory import Buffer, Slice, Whole
from ratchet.tpu.mosaic.ops.memory import allocate
from ratchet.tpu.mosaic.rules import RULES, root_of
from ratchet.values.status import Refusal, Status

_NEVER = -(2**30)
"""The stamp of what no step has written."""

Types = Sequence[tuple[tuple[int, ...], np.dtype]]
"""Shape and dtype of each output."""


class Operands:
    """Puts the operands of a call, prefetched scalars and scratch into the executor's memory, and moves the windows."""

    def __init__(self, kernel: Kernel, inputs: Sequence[Array], outputs: Types, executor: Executor) -> None:
        self.kernel, self.outputs, self.executor = kernel, outputs, executor
        self.whole: dict[tuple[bool, int], Whole] = {}
        """The HBM array of each input and output."""
        self.windows: dict[Value, Buffer] = {}
        """Windows that are memory of their own, by the kernel's argument."""
        operations = [nested for op in kernel.main.body.operations for nested in op.walk()]
        self.written = {root_of(value) for op in operations for value in _writes(op)}
        """The kernel's arguments that it writes to."""
        by_index = {o.index: o for o in kernel.operands if not o.is_output}
        executor.same_array = {
            by_index[o.alias].argument: o.argument for o in kernel.operands if o.is_output and o.alias in by_index
        }
        for value, array in zip(kernel.prefetch, inputs, strict=False):
            dtype = jax_dtype(value.type.dtype)
            buffer = Buffer(name="scalar prefetch", shape=value.type.shape, dtype=dtype, space="smem")
            executor.memory[buffer] = encode(_as_kernel_dtype(array, dtype)).reshape(value.type.shape)
            executor.values[value] = Whole(buffer)
        data = inputs[len(kernel.prefetch) :]
        for operand in sorted(kernel.operands, key=lambda o: not o.is_output):  # outputs first: inputs may alias them
            self._add(operand, data)
        for value in kernel.scratch:
            executor.values[value] = allocate(executor, value, "scratch")

    def _add(self, operand: Operand, data: Sequence[Array]) -> None:
        executor, argument = self.executor, operand.argument
        if operand.is_output:
            shape, _ = self.outputs[operand.index]
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
                dtype=jax_dtype(argument.type.dtype),
                space="hbm",
                is_input=not operand.is_output,
            )
            executor.memory[buffer] = self._in_hbm(operand, shape, array)
            whole = Whole(buffer)
        self.whole[operand.is_output, operand.index] = whole
        if operand.window is None:
            if tuple(argument.type.shape) != tuple(shape):
                raise self.kernel.module.refusal(f"an operand of {shape} seen as {argument.type}")
            executor.values[argument] = whole
            executor.add_shadows(argument, whole.buffer)
        elif operand.is_output or argument in self.written or operand.alias is not None:
            window = Buffer(
                name=f"window of {whole.buffer.name}",
                shape=operand.window.shape,
                dtype=whole.dtype,
                space=argument.type.space,
                is_input=not operand.is_output and operand.alias is None,
            )
            executor.memory[window] = executor.poison(window.shape, window.dtype)
            executor.add_shadows(argument, window)
            if operand.alias is not None and not operand.is_output:
                self._add_stamps(whole.buffer)
            executor.values[argument] = Whole(window)
            self.windows[argument] = window
        elif executor.options.on_wait and argument in executor.dma_sources:
            executor.followed.add(whole.buffer)
            executor.moving.add(whole.buffer)

    def _in_hbm(self, operand: Operand, shape: tuple[int, ...], array: Array | None) -> Array:
        """The HBM array of an operand, padded so that every window of a ragged last block is inside."""
        executor, dtype = self.executor, jax_dtype(operand.argument.type.dtype)
        array = executor.poison(shape, dtype) if array is None else encode(_as_kernel_dtype(array, dtype))
        low, high = [0] * len(shape), [0] * len(shape)
        for other in self.kernel.operands:
            is_alias = operand.alias is not None and other.is_output != operand.is_output
            if other.window is None or not (other is operand or (is_alias and other.index == operand.alias)):
                continue
            window = other.window
            for d, (dim, block) in enumerate(zip(shape, window.shape, strict=True)):
                low[d] = max(low[d], window.low[d])
                extra = window.high[d] if window.element else -dim % block
                high[d] = max(high[d], extra, block - dim)
        if not any(low) and not any(high):
            return array
        if any(low) and operand.alias is not None:
            raise executor.kernel.refusal("an aliased operand with padding before it")
        padded = tuple(a + dim + b for a, dim, b in zip(low, shape, high, strict=True))
        return lax.dynamic_update_slice(executor.poison(padded, dtype, executor.padding), array, tuple(low))

    def _add_stamps(self, buffer: Buffer) -> None:
        executor = self.executor
        if executor.options.windows_ahead:
            stamps = Buffer(
                name=f"stamps of {buffer.name}", shape=buffer.shape, dtype=np.dtype(np.int32), space="judge"
            )
            executor.stamps[buffer] = stamps
            executor.memory[stamps] = jnp.full(executor.memory[buffer].shape, _NEVER, jnp.int32)

    @property
    def shapes(self) -> dict[int, tuple[int, ...]]:
        """See ``copies.Traced``."""
        return {
            number_of(self.kernel, operand): tuple(
                self.executor.memory[self.whole[operand.is_output, operand.index].buffer].shape
            )
            for operand in self.kernel.operands
        }

    @functools.cached_property
    def followed(self) -> list[tuple[Operand, Window]]:
        """The operands of whose windows each step has to know whether they moved."""
        arrays = {key for key, whole in self.whole.items() if whole.buffer in self.executor.followed}
        return [
            (o, o.window)
            for o in self.kernel.operands
            if o.window is not None and (o.argument in self.windows or (o.is_output, o.index) in arrays)
        ]

    @property
    def nowhere(self) -> list[list[Array]]:
        """Where the windows that are followed are before the first step."""
        return [[jnp.int32(-(2**31))] * len(window.shape) for _, window in self.followed]

    # --- one step ---

    def move(self, coordinates: Sequence[Index], last: list[list[Array]], before: Any) -> list[list[Array]]:
        """Move the windows to a step's blocks; the block offsets of those that are followed.

        ``last`` are those of the step before, which had the linear number ``before``, negative for the first step.
        """
        executor, now, previous = self.executor, list[list[Array]](), iter(last)
        elements = []
        for operand in self.kernel.operands:
            window = operand.window
            if window is None:
                continue
            starts = self._starts(operand, window, coordinates)
            own, whole = self.windows.get(operand.argument), self.whole[operand.is_output, operand.index]
            elements.append(first_element(starts, executor.memory[whole.buffer].shape))
            moved: Any = True
            if any(operand is one for one, _ in self.followed):
                now.append([jnp.asarray(s, jnp.int32) for s in starts])
                moved = jnp.any(jnp.stack(now[-1]) != jnp.stack(next(previous)))
                self._check_moved(whole.buffer if own is None else own, moved)
            if own is None:
                executor.values[operand.argument] = Slice(whole, starts, window.shape)
                continue
            if operand.is_output:
                if before is not None:
                    executor.digest(operand.index, executor.memory[own], step=before, when=moved & (before >= 0))
                fresh = executor.poison(own.shape, own.dtype)
            else:
                fresh = self._fetched(window, whole.buffer, now[-1])
            executor.memory[own] = jnp.where(moved, fresh, executor.memory[own])
        if BLOCKS in executor.memory:
            log_step(executor.memory, executor.steps_before, elements)
        return now

    def write_back(self, now: list[list[Array]]) -> None:
        """Write the windows of outputs to where they are."""
        executor = self.executor
        for (operand, window), starts in zip(self.followed, now, strict=True):
            if not operand.is_output:
                continue
            own, buffer = self.windows[operand.argument], self.whole[True, operand.index].buffer
            written = {buffer: executor.memory[own]}
            if buffer in executor.stamps:
                until = executor.steps_before + window.buffers - 1
                written[executor.stamps[buffer]] = jnp.full(own.shape, until, jnp.int32)
            for array, block in written.items():
                executor.memory[array] = lax.dynamic_update_slice(
                    executor.memory[array], block, starts, allow_negative_indices=False
                )

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

    def _check_moved(self, window: Buffer, moved: Any) -> None:
        """A copy of the kernel's that reads or writes a window has to be waited for before the pipeline moves it."""
        shape = self.executor.memory[window].shape
        self.executor.check_in_flight(None, window, ((0,) * len(shape), shape), "the next block comes into", moved)

    def _fetched(self, window: Window, buffer: Buffer, starts: list[Array]) -> Array:
        """An input's block, as the pipeline reads it ``window.buffers - 1`` steps before its own."""
        executor = self.executor
        block = take(executor.memory[buffer], starts, window.shape)
        if buffer not in executor.stamps:
            return block
        stamps = take(executor.memory[executor.stamps[buffer]], starts, window.shape)
        read = executor.steps_before - (window.buffers - 1)
        return jnp.where(stamps >= read, executor.poison(window.shape, buffer.dtype), block)

    # --- at the end ---

    def results(self) -> list[Array]:
        """The outputs, in the dtypes of the call."""
        results = []
        for i, (shape, dtype) in enumerate(self.outputs):
            whole = self.whole[True, i]
            array = take(self.executor.memory[whole.buffer], (0,) * len(shape), shape)
            results.append(_as_kernel_dtype(decode(array, whole.dtype), dtype))
        return results


def _as_kernel_dtype(array: Array, dtype: np.dtype) -> Array:
    """Signless in the kernel, signed or not outside: the same bits."""
    if array.dtype == dtype:
        return array
    if not jnp.issubdtype(array.dtype, jnp.integer) or bits(array.dtype) != bits(np.dtype(dtype)):
        raise Refusal(Status.CANNOT_VERIFY, f"an operand of {array.dtype} where the kernel has {dtype}")
    return lax.bitcast_convert_type(array, dtype)


def _writes(op: Op) -> list[Value]:
    rule = RULES.get(op.name)
    return list(rule.writes(op)) if rule else []
