"""The operands of a call on several cores: arrays in HBM that all share, and each core's windows of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ratchet.tpu.mlir.module import Value
from ratchet.tpu.mlir.signature import Operand, Window
from ratchet.tpu.mosaic.arrays import jax_dtype, kept_as
from ratchet.tpu.mosaic.cores.copies import Wrong
from ratchet.tpu.mosaic.cores.core import Core
from ratchet.tpu.mosaic.cores.shared import Shared
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.memory import Buffer, Whole

Starts = tuple[int, ...]


class Windows:
    """Puts operands, prefetched scalars and scratch into the memory of the cores, and moves windows."""

    def __init__(
        self, shared: Shared, cores: Sequence[Core], inputs: Sequence[np.ndarray],
        outputs: Sequence[tuple[tuple[int, ...], np.dtype]],
    ) -> None:  # fmt: skip
        self._shared, self._cores, self._outputs, self._kernel = shared, cores, outputs, shared.kernel
        kernel = shared.kernel
        self._whole: dict[tuple[bool, int], np.ndarray] = {}
        self._windows: dict[Value, Buffer] = {}
        self._at: dict[tuple[int, Value], Starts] = {}
        for value, array in zip(kernel.prefetch, inputs, strict=False):
            self._bind(
                value,
                "scalar prefetch",
                array.view(kept_as(jax_dtype(value.type.dtype))).reshape(value.type.shape),
                is_input=True,
            )
        data = inputs[len(kernel.prefetch) :]
        for operand in sorted(kernel.operands, key=lambda one: not one.is_output):
            self._add(operand, data)
        for core in cores:
            for value in kernel.scratch:
                core.values[value] = Whole(shared.buffer(value))

    def _add(self, operand: Operand, data: Sequence[np.ndarray]) -> None:
        argument = operand.argument
        dtype = jax_dtype(argument.type.dtype)
        if not operand.is_output and operand.alias is not None:
            array = self._whole[True, operand.alias]
        elif operand.is_output and operand.alias is None:
            array = self._shared.unwritten(self._outputs[operand.index][0], dtype)
        else:
            array = np.array(data[operand.alias if operand.is_output else operand.index])  # type: ignore[index]
            array = array.view(kept_as(dtype))
        self._whole[operand.is_output, operand.index] = array
        name = f"{'output' if operand.is_output else 'input'} {operand.index}"
        is_input = not operand.is_output and operand.alias is None
        if operand.window is None:
            self._bind(argument, name, array, is_input=is_input)
            return
        shape = operand.window.shape
        window = self._shared.runs.buffer(argument, f"window of {name}", shape=shape, is_input=is_input)
        self._windows[argument] = window
        for core in self._cores:
            core.values[argument] = Whole(window)

    def _bind(self, value: Value, name: str, array: np.ndarray, *, is_input: bool) -> None:
        buffer = self._shared.runs.buffer(value, name, shape=tuple(array.shape), is_input=is_input)
        for core in self._cores:
            core.memory[buffer] = array
            core.values[value] = Whole(buffer)

    # --- one step ---

    def fetch(self, core: Core, coordinates: Sequence[int]) -> None:
        """Move the windows of a core to its next step."""
        for operand in self._kernel.operands:
            if operand.window is None:
                continue
            starts = self._starts(core, operand, operand.window, coordinates)
            key, buffer = (core.number, operand.argument), self._windows[operand.argument]
            if self._at.get(key) == starts:
                continue
            self._at[key] = starts
            block = self._shared.unwritten(buffer.shape, buffer.dtype, padding=not operand.is_output)
            if not operand.is_output:
                inner, outer = self._inside(operand, operand.window, starts)
                block[inner] = self._whole[False, operand.index][outer]
            np.copyto(core.of(buffer), block)

    def write_back(self, core: Core) -> None:
        """Write the windows of a core's outputs to where they are."""
        for operand in self._kernel.operands:
            if operand.window is None or not operand.is_output:
                continue
            starts = self._at[core.number, operand.argument]
            inner, outer = self._inside(operand, operand.window, starts)
            self._whole[True, operand.index][outer] = core.of(self._windows[operand.argument])[inner]

    def _inside(self, operand: Operand, window: Window, starts: Starts) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """What of a block is in the array: in the block, and in the array."""
        inner, outer = [], []
        shape = self._whole[operand.is_output, operand.index].shape
        for start, low, size, dim in zip(starts, window.low, window.shape, shape, strict=True):
            first, last = max(start - low, 0), min(start - low + size, dim)
            inner.append(slice(first - (start - low), last - (start - low)))
            outer.append(slice(first, last))
        return tuple(inner), tuple(outer)

    def _starts(self, core: Core, operand: Operand, window: Window, coordinates: Sequence[int]) -> Starts:
        prefetch = [core.values[value] for value in self._kernel.prefetch]
        indices = core.index_map(window.transform.body, [*map(np.int32, coordinates), *prefetch])
        shape = self._whole[operand.is_output, operand.index].shape
        starts = []
        for d, (index, block, dim) in enumerate(zip(indices, window.shape, shape, strict=True)):
            last = dim + window.low[d] + window.high[d] - block if window.element else -(-dim // block) - 1
            if not 0 <= index <= last:
                what = f"{'output' if operand.is_output else 'input'} {operand.index}"
                message = f"the index map of {what} points a block of {window.shape} outside {shape}"
                raise Wrong(Kind.WINDOW_OUT_OF_BOUNDS, window.transform.body.operations[-1], message)
            starts.append(index if window.element else index * block)
        return tuple(starts)

    # --- at the end ---

    def results(self) -> list[np.ndarray]:
        """The outputs, as memory keeps them."""
        return [self._whole[True, i] for i in range(len(self._outputs))]

    def nothing(self) -> list[np.ndarray]:
        """Outputs of an execution that found something."""
        return [np.zeros(array.shape, array.dtype) for array in self.results()]
