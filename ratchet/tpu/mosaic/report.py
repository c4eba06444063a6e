"""What an execution of a kernel reports beside its outputs: findings, counts, digests of what it read."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from ratchet.tpu.mosaic import events
from ratchet.tpu.mosaic.events import LOG, LOGGED
from ratchet.tpu.mosaic.findings import KINDS
from ratchet.tpu.mosaic.memory import Array, Buffer, Memory

FLAGS = Buffer(name="findings", shape=(2 * len(KINDS),), dtype=np.dtype(np.int32), space="judge")
"""For each kind of finding the step and the site of the first one, or -1."""

COUNTS = Buffer(name="counts of executions", shape=(), dtype=np.dtype(np.int32), space="judge")
"""The counters of ``counting.counters``."""

WITNESS = Buffer(name="digests of what was read", shape=(), dtype=np.dtype(np.int32), space="judge")
"""With ``Options.witness``: one digest for every grid step and operation that reads, in that order."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How many words of a report hold what, behind the first findings."""

    counts: int
    digests: int
    chips: int
    """How many chips' events follow; 0 where none are logged."""

    @property
    def parts(self) -> tuple[int, int, int, int]:
        """Where counts, digests and events begin, and where the report ends."""
        counts = 2 * len(KINDS)
        digests = counts + self.counts
        logs = digests + self.digests
        return counts, digests, logs, logs + self.chips * events.WORDS


def report_of(memory: Memory) -> Array:
    """int32: first findings, counts of executions, digests of what was read, and the chip's events, if logged."""
    parts = [memory[FLAGS], memory[COUNTS], memory[WITNESS]]
    if LOG in memory:
        parts += [memory[LOGGED].reshape(1), memory[LOG].reshape(-1)]
    return jnp.concatenate(parts)


def merge_reports(before: Array, now: Array, layout: Layout) -> Array:
    """One report of a kernel that runs more than once: first findings, sums of counters, digests, events in order.

    Before the first run everything is -1.
    """
    flags, digests, logs, _ = layout.parts
    none = jnp.repeat(before[:flags:2] < 0, 2)
    return jnp.concatenate([
        jnp.where(none, now[:flags], before[:flags]),
        jnp.maximum(before[flags:digests], 0) + now[flags:digests],
        before[digests:logs] * 31 + now[digests:logs],
        *([events.merged(before[logs:], now[logs:], layout.chips)] if layout.chips else []),
    ])  # fmt: skip
