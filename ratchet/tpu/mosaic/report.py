"""What an execution of a kernel reports beside its outputs: first findings, counts of what it executed, digests of what
it read, and what each chip did that others may see. One int32 vector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.module import KernelModule, Op
from ratchet.tpu.mosaic import events
from ratchet.tpu.mosaic.arrays import Array, bits, is_float, unsigned
from ratchet.tpu.mosaic.copies import logged
from ratchet.tpu.mosaic.events import LOG, LOGGED
from ratchet.tpu.mosaic.findings import KINDS
from ratchet.tpu.mosaic.memory import Buffer, Memory
from ratchet.tpu.mosaic.rules import RULES
from ratchet.values.control import ControlFlow

FLAGS = Buffer(name="findings", shape=(2 * len(KINDS),), dtype=np.dtype(np.int32), space="judge")
"""For each kind of finding the step and the site of the first one, or -1."""

COUNTS = Buffer(name="counts of executions", shape=(), dtype=np.dtype(np.int32), space="judge")
"""See ``counters``."""

DIGESTS = Buffer(name="digests of what was read", shape=(), dtype=np.dtype(np.int32), space="judge")
"""With ``Options.digests``: one for every grid step and operation that reads, in that order."""

_UNKNOWN = -(2**31)
"""A word that only another device has: of all devices' words the largest counts."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How many words of a report hold what, behind the first findings."""

    counts: int
    digests: int
    blocks: int = 0
    copies: int = 0
    """Words of ``copies.BLOCKS`` and ``copies.COPIES``; 0 where none are logged."""
    chips: int
    """How many chips' events follow; 0 where none are logged."""
    operands: int = 0
    """Words behind all that in which kernels on several cores give their operands (``cores.program``)."""

    @property
    def width(self) -> int:
        """Words of all."""
        *_, end = self.parts
        return end + self.operands

    @property
    def parts(self) -> tuple[int, int, int, int, int, int]:
        """Where counts, digests, blocks, copies and events begin, and where the report ends."""
        counts = 2 * len(KINDS)
        digests = counts + self.counts
        blocks = digests + self.digests
        copies = blocks + self.blocks
        logs = copies + self.copies
        return counts, digests, blocks, copies, logs, logs + self.chips * events.WORDS

    def completed(self, report: Array, device: Array | None) -> Array:
        """A report with room for the events of other chips than ``device``, whose own it has if it is given."""
        *_, own, _ = self.parts
        if device is not None and self.chips:
            logs = jnp.full((self.chips, events.WORDS), _UNKNOWN, jnp.int32)
            logs = lax.dynamic_update_slice(logs, report[None, own:], (device, jnp.int32(0)))
            report = jnp.concatenate([report[:own], logs.reshape(-1)])
        return jnp.pad(report, (0, self.width - report.shape[0]))

    def merged(self, before: Array, now: Array) -> Array:
        """One report of a kernel that runs more than once: first findings, sums of counters, digests, the copies of the
        first run, events in order.

        Before the first run everything is -1.
        """
        flags, digests, blocks, copies, logs, operands = self.parts
        none = jnp.repeat(before[:flags:2] < 0, 2)
        return jnp.concatenate([
            jnp.where(none, now[:flags], before[:flags]),
            jnp.maximum(before[flags:digests], 0) + now[flags:digests],
            before[digests:blocks] * 31 + now[digests:blocks],
            *(jnp.where(before[low] < 0, now[low:high], before[low:high])
              for low, high in ((blocks, copies), (copies, logs)) if low < high),
            *([events.merged(before[logs:operands], now[logs:operands], self.chips)] if self.chips else []),
            *([jnp.maximum(before[operands : operands + 1], 0) + 1, now[operands + 1 :]] if self.operands else []),
        ])  # fmt: skip


def report_of(memory: Memory) -> Array:
    """int32: first findings, counts of executions, digests of what was read, copies, the chip's events if logged."""
    parts = [memory[FLAGS], memory[COUNTS], memory[DIGESTS]]
    parts += logged(memory)
    if LOG in memory:
        parts += [memory[LOGGED].reshape(1), memory[LOG].reshape(-1)]
    return jnp.concatenate(parts)


# --- counts ---------------------------------------------------------------------------------------

THEN, OTHERWISE = 0, 1
"""Counters of a conditional, by body."""

_COUNTERS = {"scf.if": 2, "scf.for": 1, "scf.while": 1, "tpu.enqueue_dma": 1, "tpu.enqueue_indirect_dma": 1}


def counters(kernel: KernelModule) -> dict[Op, int]:
    """Number of the first counter of each operation that has some. Those of index maps have none."""
    first_of, number = {}, 0
    for function in kernel.functions.values():
        if not function.is_kernel:
            continue
        for op in (op for outer in function.body.operations for op in outer.walk()):
            if op.name in _COUNTERS:
                first_of[op] = number
                number += _COUNTERS[op.name]
    return first_of


def counters_of(kernel: KernelModule) -> int:
    """How many counters a kernel has."""
    return sum(_COUNTERS[op.name] for op in counters(kernel))


def control_flow(counted: Iterable[tuple[KernelModule, Sequence[int] | np.ndarray]]) -> ControlFlow:
    """What the counters of some kernels say. Operations without a place are left out."""
    branches: dict[str, tuple[int, int]] = {}
    loops: Counter[str] = Counter()
    copies: Counter[str] = Counter()
    for kernel, rows in counted:
        counts = np.maximum(rows, 0)  # -1 in a kernel that was not executed
        for op, number in counters(kernel).items():
            if not op.location:
                continue
            if op.name == "scf.if":
                then, otherwise = branches.get(op.location, (0, 0))
                branches[op.location] = (
                    then + int(counts[number + THEN]),
                    otherwise + int(counts[number + OTHERWISE]),
                )
            else:
                (copies if op.name.startswith("tpu.enqueue") else loops)[op.location] += int(counts[number])
    return ControlFlow(branches=branches, loops=dict(loops), copies=dict(copies))


# --- digests of what is read ----------------------------------------------------------------------

CELLS = 1 << 18
"""Digests kept of one kernel: 1 MiB. What a longer run reads after that shares the last one."""


def reads(kernel: KernelModule, outputs: int) -> list[Op | int]:
    """Where a kernel reads memory: its loads and DMAs in order, then each output's window when it is written back."""
    operations = list(kernel.operations())
    used = {value for op in operations for value in op.operands}
    # Pallas stores by a swap: it also loads what was there, and nobody uses that.
    marked = {name for name, rule in RULES.items() if rule.reads}
    readers = (op for op in operations if op.name in marked and (not op.results or used & set(op.results)))
    return [*readers, *range(outputs)]


def digest(value: Array) -> Array:
    """int32 scalar that changes with the bits of ``value`` and where they are."""
    if is_float(np.dtype(value.dtype)):
        value = lax.bitcast_convert_type(value, unsigned(np.dtype(value.dtype)))
    words = (lax.bitcast_convert_type(value, jnp.int32) if bits(value.dtype) == 32 else value.astype(jnp.int32)).ravel()
    mixed = (words ^ lax.iota(jnp.int32, words.size) * -1640531535) * -2048144789  # odd multipliers of known hashes
    mixed = (mixed ^ lax.shift_right_logical(mixed, 13)) * -1028477387
    return jnp.sum(mixed ^ lax.shift_right_logical(mixed, 16), dtype=jnp.int32)


def first_difference(kernel: KernelModule, outputs: int, a: np.ndarray, b: np.ndarray) -> tuple[Op | int, int] | None:
    """Place and linear grid step where two executions first read different data; ``None`` if not known."""
    apart = np.flatnonzero(a != b)
    if not apart.size or apart[0] == a.size - 1:
        return None
    step, number = divmod(int(apart[0]), len(known := reads(kernel, outputs)))
    return known[number], step
