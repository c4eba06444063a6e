"""What an execution of a kernel reports beside its outputs: findings, counts, digests of what it read."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ratchet.mosaic.findings import KINDS
from ratchet.mosaic.memory import Array, Buffer, Memory

FLAGS = Buffer(name="findings", shape=(2 * len(KINDS),), dtype=np.dtype(np.int32), space="judge")
"""For each kind of finding the step and the site of the first one, or -1."""

COUNTS = Buffer(name="counts of executions", shape=(), dtype=np.dtype(np.int32), space="judge")
"""The counters of ``counting.counters``."""

WITNESS = Buffer(name="digests of what was read", shape=(), dtype=np.dtype(np.int32), space="judge")
"""With ``Options.witness``: one digest for every grid step and operation that reads, in that order."""


def report_of(memory: Memory) -> Array:
    """int32: first findings, counts of executions, digests of what was read."""
    return jnp.concatenate([memory[FLAGS], memory[COUNTS], memory[WITNESS]])


def merge_reports(before: Array, now: Array, counted: int) -> Array:
    """One report of a kernel that runs more than once: first findings, sums of ``counted`` counters, digests.

    Before the first run everything is -1.
    """
    flags, digests = 2 * len(KINDS), 2 * len(KINDS) + counted
    none = jnp.repeat(before[:flags:2] < 0, 2)
    return jnp.concatenate([
        jnp.where(none, now[:flags], before[:flags]),
        jnp.maximum(before[flags:digests], 0) + now[flags:digests],
        before[digests:] * 31 + now[digests:],
    ])  # fmt: skip
