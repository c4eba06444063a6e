"""What one execution of a program gives: values, and findings with operation, grid step and source line."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from ratchet.values.control import ControlFlow
from ratchet.values.status import Status


class Kind(Enum):
    """What can be wrong with a kernel that still computes something: the judge's status, meaning."""

    WINDOW_OUT_OF_BOUNDS = Status.OUT_OF_BOUNDS, "an index map points a window outside its array"
    SLICE_OUT_OF_BOUNDS = (
        Status.OUT_OF_BOUNDS,
        "a load, store, slice or DMA reaches outside its buffer, or a device that is not there",
    )
    UNINITIALISED_MEMORY = Status.MEMORY_HAZARD, "memory that was never written reaches an output"
    ORDER_OF_PARALLEL_STEPS = (
        Status.MEMORY_HAZARD,
        "an output depends on the order in which the steps of a `parallel` dimension run",
    )
    WAIT_WITHOUT_START = Status.DEADLOCK, "a wait needs more of a semaphore than was ever signalled: on a TPU it hangs"
    DMA_NEVER_WAITED = (
        Status.MEMORY_HAZARD,
        "a semaphore is not back at zero when the kernel ends: a DMA or signal was not waited for",
    )
    READ_BEFORE_WAIT = (
        Status.MEMORY_HAZARD,
        "an output depends on when a DMA arrives: memory is used before the wait for it",
    )
    SOURCE_OVERWRITTEN = (
        Status.MEMORY_HAZARD,
        "memory is written while a DMA may still read it: the wait for it comes later",
    )
    TARGET_OVERWRITTEN = (
        Status.MEMORY_HAZARD,
        "memory is written that a DMA is yet to arrive in: which of both stays is chance",
    )
    TOO_MANY_COPIES = Status.CANNOT_VERIFY, "more copies are in flight than the judge follows"
    CHIPS_RACE = (
        Status.MEMORY_HAZARD,
        "a chip writes into another's memory, and nothing makes it wait until that is done with it",
    )
    CORES_RACE = (
        Status.MEMORY_HAZARD,
        "a core reads or writes memory that another writes, and nothing makes one wait for the other",
    )
    TOO_MANY_EVENTS = Status.CANNOT_VERIFY, "chips do more that others may see than the judge follows"
    WINDOW_RACE = (
        Status.MEMORY_HAZARD,
        "an output depends on whether the pipeline reads a later step's window before or after a write into it",
    )
    FALSE_PROMISE = (
        Status.MEMORY_HAZARD,
        "the kernel promises the compiler what is false: `multiple_of`, a rotation that is not negative",
    )
    NEGATIVE_AMOUNT = Status.MEMORY_HAZARD, "a semaphore is signalled or waited for by less than nothing"
    INPUT_WRITTEN = Status.INPUTS_CHANGED, "the kernel writes into an input that is not aliased to an output"
    UNDEFINED_SCALAR = (
        Status.CANNOT_VERIFY,
        "a scalar is computed whose value on a TPU is not known: a division by zero, a float that no int32 holds",
    )

    UNDEFINED_VECTOR = (
        Status.CANNOT_VERIFY,
        "a vector is computed whose value on a TPU is not known: NaN that are sorted, what a matrix unit keeps",
    )
    MATRIX_UNIT = (
        Status.MEMORY_HAZARD,
        "a register of the matrix unit is pushed to while it is full, or multiplied by while it is empty",
    )

    def __init__(self, status: Status, meaning: str) -> None:
        self.label, self.status, self.meaning = self.name.lower(), status, meaning


KINDS = tuple(Kind)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong, the first time it happens."""

    kind: Kind
    message: str
    operation: str = ""
    """E.g. ``vector.load``; ``""`` where the whole kernel is meant."""
    grid_step: tuple[int, ...] = ()
    """Coordinates of the step; empty for a kernel without a grid or a finding about all of it."""
    location: str = ""
    """``file:line``, or ``""`` where the module does not carry it."""

    def __str__(self) -> str:
        what = self.operation or ("" if not (self.grid_step or self.location) else "kernel")
        where = f" in grid step {self.grid_step}" if self.grid_step else ""
        at = f" at {self.location}" if self.location else ""
        place = f" [{what}{where}{at}]" if what else ""
        return f"{self.kind.label}: {self.message}{place}"


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """Values, findings and digests of one execution."""

    outputs: tuple[np.ndarray, ...]
    findings: tuple[Finding, ...]
    seconds: float
    control: ControlFlow = field(default_factory=ControlFlow)
    """How often the kernels of TensorCores executed each branch, loop and copy; of several devices, the most that one
    did. What SparseCores do is read of their tiles, and not compared."""
    replicas: tuple[tuple[np.ndarray, ...], ...] = ()
    """The outputs as other devices hold them, where the program says that they are the same and they are not."""
    digests: tuple[np.ndarray, ...] = ()
    """For each kernel, with ``Options.digests``, those of what it read."""
