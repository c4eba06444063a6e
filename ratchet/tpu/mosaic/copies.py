"""The log of what a kernel copies while it is executed for its values: the blocks of its windows, and its own copies.

Two int32 vectors, each behind a count. They are kept in the first execution of a call, on one chip; the judge compares
them with what the schedule machine copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.module import KernelModule, Op, Value
from ratchet.tpu.mlir.signature import Kernel
from ratchet.tpu.mlir.signature import Operand as Argument
from ratchet.tpu.mosaic.arrays import Array, Index, Number, add, known, times, vector_of
from ratchet.tpu.mosaic.memory import Buffer, Memory
from ratchet.tpu.mosaic.rules import RULES, root_of
from ratchet.values.copies import A_WINDOW, MOST_BLOCKS, MOST_COPIES, ExecutedCopies, Operand, Place, packed
from ratchet.values.tokens import SOURCE_FILE

BLOCKS = Buffer(name="blocks of windows", shape=(), dtype=np.dtype(np.int32), space="judge")
"""How many grid steps ran, then per step the first element of each window."""
COPIES = Buffer(name="copies started", shape=(), dtype=np.dtype(np.int32), space="judge")
"""``_WIDTH`` words of each copy that the kernel started, with room for as many more as are written at a time."""
COPIED = Buffer(name="number of copies started", shape=(), dtype=np.dtype(np.int32), space="judge")
"""Beside it: XLA copies a vector of which a word is read where others are written."""
_WIDTH = 4
_FAR = 1 << 31
_TOGETHER = 64
"""Rows that are written at a time."""


def first_element(starts: Sequence[Index], shape: Sequence[int]) -> Number:
    """The row-major number of the element at ``starts``, wherever they point; 0 where int32 cannot tell."""
    number: Index = 0
    if math.prod(shape) >= _FAR:
        return number
    for dim, start in enumerate(starts):
        number = add(number, times(start, math.prod(shape[dim + 1 :])))
    return number


def words_of_blocks(kernel: Kernel) -> int:
    """How many words the blocks of a kernel's windows take."""
    windows = len(_windows(kernel))
    steps = MOST_COPIES if kernel.dynamic_bounds else math.prod(bound or 0 for bound in kernel.bounds)
    return 1 + min(steps * windows, MOST_BLOCKS) if windows else 0


def words_of_copies(kernel: KernelModule) -> int:
    """How many words the copies that a kernel starts take."""
    return 1 + (MOST_COPIES + _TOGETHER) * _WIDTH if starts(kernel) else 0


def starts(kernel: KernelModule) -> list[Op]:
    """The operations that start copies, in order."""
    return [op for op in kernel.operations() if op.name == "tpu.enqueue_dma"]


def begin(memory: Memory, blocks: int, copies: int) -> None:
    """Makes room for so many words; for none, nothing is logged."""
    if blocks:
        memory[BLOCKS] = jnp.zeros(blocks, jnp.int32)
    if copies:
        memory[COPIES], memory[COPIED] = jnp.zeros(copies - 1, jnp.int32), jnp.int32(0)


def log_step(memory: Memory, step: Index, elements: Sequence[Number]) -> None:
    """Log the first element of each window in the grid step that runs after ``step`` others."""
    log = memory[BLOCKS]
    if not elements or log.shape[0] <= len(elements):
        return
    last = (log.shape[0] - 1) // len(elements) - 1
    at = min(int(step), last) if known(step) else lax.min(step, np.int32(last))
    log = lax.dynamic_update_slice(log, vector_of(elements), (add(times(at, len(elements)), 1),))
    memory[BLOCKS] = lax.dynamic_update_slice(log, vector_of([add(step, 1)]), (0,))


def log_copies(memory: Memory, rows: Sequence[Sequence[Number]]) -> None:
    """Log copies in the order in which they were started, each of ``_WIDTH`` numbers."""
    for some in (rows[at : at + _TOGETHER] for at in range(0, len(rows), _TOGETHER)):
        count = memory[COPIED]
        at = lax.min(count, np.int32(MOST_COPIES)) * _WIDTH
        row = vector_of([number for row in some for number in row])
        memory[COPIES] = lax.dynamic_update_slice(memory[COPIES], row, (at,), allow_negative_indices=False)
        memory[COPIED] = count + len(some)


def logged(memory: Memory) -> list[Array]:
    """What was logged, as vectors: the blocks, the number of copies, the copies."""
    logs = [memory[BLOCKS]] if BLOCKS in memory else []
    return [*logs, lax.reshape(memory[COPIED], (1,)), memory[COPIES]] if COPIES in memory else logs


# --- what was logged ------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Traced:
    """What the translation of a kernel knows of its copies."""

    shapes: dict[int, tuple[int, ...]]
    """Shape of each operand's array with its padding, by number among all operands of the call."""
    sizes: dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
    """Of each operation that starts copies, by index, what it reads and writes; where that is fixed."""


def executed(kernel: Kernel, site: str, traced: Traced, report: np.ndarray, blocks: int, copies: int) -> ExecutedCopies:
    """The copies of a kernel's call.

    Args:
        site: of the call.
        report: int32, ``blocks`` words of windows and ``copies`` words of copies.
    """
    windows = [number_of(kernel, operand) for operand in _windows(kernel)]
    steps = max(int(report[0]), 0) if blocks and windows else 0
    kept = min(steps, (blocks - 1) // len(windows)) if windows else 0
    count = max(int(report[blocks]), 0) if copies else 0
    memories = {
        operand.argument: number_of(kernel, operand) if operand.window is None else A_WINDOW
        for operand in kernel.operands
    }
    shared = _shared(kernel)
    return ExecutedCopies(
        site=site,
        operands=tuple(_operand(kernel, operand, shared, traced) for operand in kernel.operands),
        windows=tuple(windows),
        changed=_changed(kernel),
        steps=steps,
        blocks=packed(report[1 : 1 + kept * len(windows)]),
        places=tuple(
            _place(op, memories, shared, traced.sizes.get(index, ((), ())))
            for index, op in enumerate(starts(kernel.module))
        ),
        count=count,
        copies=packed(report[blocks + 1 : blocks + 1 + min(count, MOST_COPIES) * _WIDTH]),
    )


def number_of(kernel: Kernel, operand: Argument) -> int:
    """The number of an operand among all of the call, results behind them."""
    first = kernel.dynamic_bounds + len(kernel.prefetch)
    inputs = sum(not one.is_output for one in kernel.operands)
    return first + operand.index + (inputs if operand.is_output else 0)


def _windows(kernel: Kernel) -> list[Argument]:
    return [operand for operand in kernel.operands if operand.window is not None]


def _changed(kernel: Kernel) -> tuple[int, ...]:
    """Numbers of the operands whose index maps read scalars that the kernel writes."""
    operations = (nested for op in kernel.main.body.operations for nested in op.walk() if nested.name in RULES)
    written = {root_of(value) for op in operations for value in RULES[op.name].writes(op)}
    if written.isdisjoint(kernel.prefetch):
        return ()
    maps = ((operand, operand.window.transform.body) for operand in kernel.operands if operand.window is not None)
    return tuple(
        number_of(kernel, operand)
        for operand, body in maps
        if any(nested.name == "memref.load" for op in body.operations for nested in op.walk())
    )


def _shared(kernel: Kernel) -> dict[int, int]:
    """Results to the operands in whose memory they are."""
    first = kernel.dynamic_bounds + len(kernel.prefetch)
    return {
        number_of(kernel, operand): first + operand.alias
        for operand in kernel.operands
        if operand.is_output and operand.alias is not None
    }


def _operand(kernel: Kernel, operand: Argument, shared: dict[int, int], traced: Traced) -> Operand:
    number, window = number_of(kernel, operand), operand.window
    shape = traced.shapes.get(number, ())
    return Operand(
        number=number,
        space=operand.argument.type.space,
        block=() if window is None else tuple(window.shape),
        shape=shape,
        low=(0,) * len(shape) if window is None else tuple(window.low),
        shared=shared.get(number, number),
    )


def _place(
    op: Op, memories: dict[Value, int], shared: dict[int, int], sizes: tuple[tuple[int, ...], tuple[int, ...]]
) -> Place:
    ends = _ends(op)
    source, target = (memories.setdefault(root, A_WINDOW - len(memories) - 1) for root in ends)
    prefix, _, number = op.location.partition(":")
    return Place(
        place=int(number) if prefix == SOURCE_FILE and number.isdigit() else -1,
        source=shared.get(source, source),
        target=shared.get(target, target),
        source_shape=tuple(ends[0].type.shape),
        target_shape=tuple(ends[1].type.shape),
        source_sizes=sizes[0],
        target_sizes=sizes[1],
    )


def _ends(op: Op) -> tuple[Value, Value]:
    """The memory that a copy reads, and that it writes."""
    segments: Iterable[int] = op.attributes["operandSegmentSizes"]
    first, second, *_ = list(segments)
    return root_of(op.operands[0]), root_of(op.operands[first + second])
